//! The limits of heads and connections.

use std::time::Duration;

use tidegate_http::edge::EdgeConfig;

use crate::server::{Server, config, statuses};

#[tokio::test]
async fn heads_are_limited_in_size() {
    let server = Server::start(config()).await;
    let many: String = (0..101).map(|n| format!("h{n}: v\r\n")).collect();
    let response = server
        .exchange(format!("GET /fast HTTP/1.1\r\n{many}\r\n"))
        .await;
    assert_eq!(statuses(&response), [431], "{response}");
    let response = server
        .exchange(format!(
            "GET /fast HTTP/1.1\r\na: {}\r\n\r\n",
            "x".repeat(1 << 20)
        ))
        .await;
    assert_eq!(statuses(&response), [431], "{response}");
    let response = server
        .exchange(format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(64 * 1024)))
        .await;
    assert_eq!(statuses(&response), [414], "{response}");
    let large = format!(
        "GET /fast HTTP/1.1\r\na: {}\r\nconnection: close\r\n\r\n",
        "x".repeat(60 * 1024)
    );
    assert_eq!(statuses(&server.exchange(large).await), [200]);
}

#[tokio::test]
async fn a_head_that_does_not_end_times_out() {
    let server = Server::start(EdgeConfig {
        header_timeout: Duration::from_millis(100),
        ..config()
    })
    .await;
    let response = server.exchange("GET /fast HTTP/1.1\r\nx: ").await;
    assert_eq!(statuses(&response), [408], "{response}");
    assert_eq!(
        server.exchange("").await,
        "",
        "a connection without a request gets no response"
    );
    let mut client = server.connect().await;
    client.send("GET /fast HTTP/1.1\r\n\r\n").await;
    assert_eq!(
        statuses(&client.read_to_end().await),
        [200],
        "an idle connection is closed without a response"
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = Server::start(EdgeConfig {
        max_connections: 2,
        ..config()
    })
    .await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for client in [&mut first, &mut second] {
        client.send("GET /fast HTTP/1.1\r\n\r\n").await;
        client.read_until("fast").await;
    }
    let mut third = server.connect().await;
    third.send("GET /fast HTTP/1.1\r\n\r\n").await;
    let waited = tokio::time::timeout(Duration::from_millis(200), third.read_until("fast")).await;
    assert!(waited.is_err(), "the third connection waits");
    drop(first);
    third.read_until("fast").await;
}
