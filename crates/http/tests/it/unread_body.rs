//! Requests that are answered before their body is read.

use std::time::Duration;

use crate::server::{Server, edge, statuses};

const NEXT: &str = "GET /fast HTTP/1.1\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_body_that_comes_after_an_early_answer_does_not_cost_the_connection() {
    let server = Server::start(edge()).await;
    for (framing, body) in [
        ("content-length: 4", "body"),
        ("transfer-encoding: chunked", "4\r\nbody\r\n0\r\n\r\n"),
    ] {
        let mut caller = server.connect().await;
        caller
            .send(format!("POST /deny HTTP/1.1\r\n{framing}\r\n\r\n"))
            .await;
        // Clients send the two apart, and something may be between them.
        tokio::time::sleep(Duration::from_millis(20)).await;
        caller.send(body).await;
        let answer = caller.read_until("denied").await;
        assert!(!answer.contains("connection: close"), "{answer}");
        caller.send(NEXT).await;
        assert_eq!(statuses(&caller.rest().await), [200], "{framing}");
    }
}

#[tokio::test]
async fn an_early_answer_says_when_it_is_the_last() {
    let server = Server::start(edge()).await;
    for head in [
        "content-length: 10000000",
        "content-length: 4",
        "content-length: 4\r\nexpect: 100-continue",
        "transfer-encoding: chunked",
    ] {
        let mut caller = server.connect().await;
        caller
            .send(format!("POST /deny HTTP/1.1\r\n{head}\r\n\r\n"))
            .await;
        let answer = caller.rest().await;
        assert_eq!(statuses(&answer), [401], "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_long_ends_the_connection() {
    let server = Server::start(edge()).await;
    let mut caller = server.connect().await;
    caller
        .send("POST /deny HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for _ in 0..5 {
        caller
            .send(format!("4000\r\n{}\r\n", "x".repeat(0x4000)))
            .await;
    }
    let answer = caller.rest().await;
    assert!(answer.contains("connection: close"), "{answer}");
}
