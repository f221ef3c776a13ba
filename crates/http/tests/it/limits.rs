//! How much, how many, how long.

use std::time::Duration;

use tidegate_http::edge::EdgeConfig;

use crate::server::{Server, edge, statuses};

#[tokio::test]
async fn heads_have_bounds() {
    let server = Server::start(edge()).await;
    let many: String = (0..101).map(|n| format!("h{n}: v\r\n")).collect();
    let answer = server
        .ask(format!("GET /fast HTTP/1.1\r\n{many}\r\n"))
        .await;
    assert_eq!(statuses(&answer), [431], "{answer}");
    let answer = server
        .ask(format!(
            "GET /fast HTTP/1.1\r\na: {}\r\n\r\n",
            "x".repeat(1 << 20)
        ))
        .await;
    assert_eq!(statuses(&answer), [431], "{answer}");
    let answer = server
        .ask(format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(64 * 1024)))
        .await;
    assert_eq!(statuses(&answer), [414], "{answer}");
    let large = format!(
        "GET /fast HTTP/1.1\r\na: {}\r\nconnection: close\r\n\r\n",
        "x".repeat(60 * 1024)
    );
    assert_eq!(statuses(&server.ask(large).await), [200]);
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let server = Server::start(EdgeConfig {
        header_timeout: Duration::from_millis(100),
        ..edge()
    })
    .await;
    let answer = server.ask("GET /fast HTTP/1.1\r\nx: ").await;
    assert_eq!(statuses(&answer), [408], "{answer}");
    assert_eq!(
        server.ask("").await,
        "",
        "nothing was asked, nothing is answered"
    );
    let mut caller = server.connect().await;
    caller.send("GET /fast HTTP/1.1\r\n\r\n").await;
    assert_eq!(
        statuses(&caller.rest().await),
        [200],
        "an idle connection is closed without a word"
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = Server::start(EdgeConfig {
        max_connections: 2,
        ..edge()
    })
    .await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for caller in [&mut first, &mut second] {
        caller.send("GET /fast HTTP/1.1\r\n\r\n").await;
        caller.read_until("fast").await;
    }
    let mut third = server.connect().await;
    third.send("GET /fast HTTP/1.1\r\n\r\n").await;
    let waited = tokio::time::timeout(Duration::from_millis(200), third.read_until("fast")).await;
    assert!(waited.is_err(), "the third waits");
    drop(first);
    third.read_until("fast").await;
}
