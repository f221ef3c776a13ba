//! Responses that are sent before the body of the request is read.

use std::time::Duration;

use crate::server::{Server, config, statuses};

const NEXT: &str = "GET /fast HTTP/1.1\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_body_after_an_early_response_keeps_the_connection_open() {
    let server = Server::start(config()).await;
    for (framing, body) in [
        ("content-length: 4", "body"),
        ("transfer-encoding: chunked", "4\r\nbody\r\n0\r\n\r\n"),
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /deny HTTP/1.1\r\n{framing}\r\n\r\n"))
            .await;
        // Clients send head and body separately, and there may be a pause between them.
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.send(body).await;
        let response = client.read_until("denied").await;
        assert!(!response.contains("connection: close"), "{response}");
        client.send(NEXT).await;
        assert_eq!(statuses(&client.read_to_end().await), [200], "{framing}");
    }
}

#[tokio::test]
async fn an_early_response_announces_the_close() {
    let server = Server::start(config()).await;
    for head in [
        "content-length: 10000000",
        "content-length: 4",
        "content-length: 4\r\nexpect: 100-continue",
        "transfer-encoding: chunked",
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /deny HTTP/1.1\r\n{head}\r\n\r\n"))
            .await;
        let response = client.read_to_end().await;
        assert_eq!(statuses(&response), [401], "{response}");
        assert!(response.contains("connection: close"), "{response}");
    }
}

#[tokio::test]
async fn a_long_unread_body_ends_the_connection() {
    let server = Server::start(config()).await;
    let mut client = server.connect().await;
    client
        .send("POST /deny HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for _ in 0..5 {
        client
            .send(format!("4000\r\n{}\r\n", "x".repeat(0x4000)))
            .await;
    }
    let response = client.read_to_end().await;
    assert!(response.contains("connection: close"), "{response}");
}
