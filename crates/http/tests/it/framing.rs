//! Requests with ambiguous framing are rejected, and nothing after them is read.

use crate::server::{Server, config, statuses};

const SMUGGLED: &str = "GET /fast HTTP/1.1\r\n\r\n";

#[tokio::test]
async fn ambiguous_framing_is_rejected_and_nothing_after_it_is_read() {
    let server = Server::start(config()).await;
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5, 5",
        "content-length: +5",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding : chunked",
        "no colon",
    ] {
        for piece in [1, 7, 4096] {
            let mut client = server.connect().await;
            let request =
                format!("POST /echo HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n0\r\n\r\n{SMUGGLED}");
            client.send_in_pieces(request, piece).await;
            let responses = client.read_to_end().await;
            assert_eq!(statuses(&responses), [400], "{headers}: {responses}");
            assert!(
                responses.contains("content-type: application/json\r\n")
                    && responses.contains("connection: close\r\n"),
                "{responses}"
            );
            assert!(
                responses.contains("\r\n\r\n{\"error\":\"") && responses.ends_with("\"}"),
                "{responses}"
            );
        }
    }
}

#[tokio::test]
async fn http_1_0_requests_cannot_be_chunked() {
    let server = Server::start(config()).await;
    assert_eq!(
        statuses(
            &server
                .exchange("POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
                .await
        ),
        [400]
    );
}

#[tokio::test]
async fn requests_before_a_bad_one_are_answered() {
    let server = Server::start(config()).await;
    for piece in [1, 50, 4096] {
        let mut client = server.connect().await;
        let good = "POST /echo HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
        let chunked =
            "POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        client
            .send_in_pieces(
                format!("{good}{SMUGGLED}{chunked}\0bad\r\n\r\n{SMUGGLED}"),
                piece,
            )
            .await;
        let responses = client.read_to_end().await;
        assert_eq!(statuses(&responses), [200, 200, 200, 400], "{responses}");
        assert!(
            responses.contains("hello") && responses.contains("abc"),
            "{responses}"
        );
    }
}

#[tokio::test]
async fn a_rejection_waits_for_the_response_before_it() {
    let mut server = Server::start(config()).await;
    let mut client = server.connect().await;
    client.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    client.send("\0bad").await;
    client.send(vec![b'x'; 1000]).await;
    // The slow request is still running after another connection has been served.
    assert_eq!(
        statuses(
            &server
                .exchange("GET /fast HTTP/1.1\r\nconnection: close\r\n\r\n")
                .await
        ),
        [200]
    );
    assert!(server.slow_events.try_recv().is_err());
    server.release();
    assert_eq!(statuses(&client.read_to_end().await), [200, 400]);
}

#[tokio::test]
async fn a_disconnect_after_a_bad_request_is_noticed() {
    let mut server = Server::start(config()).await;
    let mut client = server.connect().await;
    client.send("GET /slow HTTP/1.1\r\n\r\n\0bad").await;
    server.expect_event("started").await;
    drop(client);
    server.expect_event("dropped").await;
}

#[tokio::test]
async fn bad_chunks_are_an_error_for_the_handler_and_end_the_connection() {
    let server = Server::start(config()).await;
    for body in [
        "3\r\nabcd\r\n0\r\n\r\n",
        "x\r\n",
        "3\nabc\n0\n\n",
        "0\r\na: b\n\r\n",
        "ffffffffffffffffff\r\n",
    ] {
        let request = format!(
            "POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}{SMUGGLED}{SMUGGLED}"
        );
        let responses = server.exchange(request).await;
        assert_eq!(statuses(&responses), [400], "{body:?}: {responses}");
    }
}

#[tokio::test]
async fn an_unread_body_is_not_the_next_request() {
    let server = Server::start(config()).await;
    for path in ["/nowhere", "/fast"] {
        let body = SMUGGLED.repeat(20_000);
        let known = format!(
            "POST {path} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let chunked = format!(
            "POST {path} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        for request in [known, chunked] {
            let responses = server.exchange(request).await;
            assert_eq!(statuses(&responses).len(), 1, "{responses}");
        }
    }
}

#[tokio::test]
async fn tls_on_the_plain_port_gets_a_response() {
    let server = Server::start(config()).await;
    let response = server
        .exchange(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        .await;
    assert_eq!(statuses(&response), [400]);
    assert!(response.contains("TLS"), "{response}");
}

#[tokio::test]
async fn a_request_in_many_pieces_is_served() {
    let server = Server::start(config()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send_in_pieces("POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 26\r\n\r\nabcdefghijklmnopqrstuvwxyz", 3).await;
        assert!(
            client
                .read_until("xyz")
                .await
                .starts_with("HTTP/1.1 200 OK")
        );
    }
}
