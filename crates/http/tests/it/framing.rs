//! Requests whose framing can be read in two ways are answered once and for all.

use crate::server::{Server, edge, statuses};

const EVIL: &str = "GET /fast HTTP/1.1\r\n\r\n";

#[tokio::test]
async fn doubtful_framing_is_refused_and_nothing_after_it_is_read() {
    let server = Server::start(edge()).await;
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
            let mut caller = server.connect().await;
            let request =
                format!("POST /echo HTTP/1.1\r\nhost: x\r\n{headers}\r\n\r\n0\r\n\r\n{EVIL}");
            caller.dribble(request, piece).await;
            let answers = caller.rest().await;
            assert_eq!(statuses(&answers), [400], "{headers}: {answers}");
            assert!(
                answers.contains("content-type: application/json\r\n")
                    && answers.contains("connection: close\r\n"),
                "{answers}"
            );
            assert!(
                answers.contains("\r\n\r\n{\"error\":\"") && answers.ends_with("\"}"),
                "{answers}"
            );
        }
    }
}

#[tokio::test]
async fn old_versions_cannot_be_chunked() {
    let server = Server::start(edge()).await;
    assert_eq!(
        statuses(
            &server
                .ask("POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
                .await
        ),
        [400]
    );
}

#[tokio::test]
async fn requests_before_a_bad_one_are_answered() {
    let server = Server::start(edge()).await;
    for piece in [1, 50, 4096] {
        let mut caller = server.connect().await;
        let good = "POST /echo HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
        let chunked =
            "POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        caller
            .dribble(format!("{good}{EVIL}{chunked}\0bad\r\n\r\n{EVIL}"), piece)
            .await;
        let answers = caller.rest().await;
        assert_eq!(statuses(&answers), [200, 200, 200, 400], "{answers}");
        assert!(
            answers.contains("hello") && answers.contains("abc"),
            "{answers}"
        );
    }
}

#[tokio::test]
async fn a_bad_request_waits_for_the_answer_before_it() {
    let mut server = Server::start(edge()).await;
    let mut caller = server.connect().await;
    caller.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.heard("begun").await;
    caller.send("\0bad").await;
    caller.send(vec![b'x'; 1000]).await;
    // The slow one is still being worked on when another connection has been served.
    assert_eq!(
        statuses(
            &server
                .ask("GET /fast HTTP/1.1\r\nconnection: close\r\n\r\n")
                .await
        ),
        [200]
    );
    assert!(server.slow.try_recv().is_err());
    server.release();
    assert_eq!(statuses(&caller.rest().await), [200, 400]);
}

#[tokio::test]
async fn a_caller_that_leaves_after_a_bad_request_is_noticed() {
    let mut server = Server::start(edge()).await;
    let mut caller = server.connect().await;
    caller.send("GET /slow HTTP/1.1\r\n\r\n\0bad").await;
    server.heard("begun").await;
    drop(caller);
    server.heard("over").await;
}

#[tokio::test]
async fn bad_chunks_are_told_to_the_handler_and_end_the_connection() {
    let server = Server::start(edge()).await;
    for body in [
        "3\r\nabcd\r\n0\r\n\r\n",
        "x\r\n",
        "3\nabc\n0\n\n",
        "0\r\na: b\n\r\n",
        "ffffffffffffffffff\r\n",
    ] {
        let request =
            format!("POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}{EVIL}{EVIL}");
        let answers = server.ask(request).await;
        assert_eq!(statuses(&answers), [400], "{body:?}: {answers}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_not_the_next_request() {
    let server = Server::start(edge()).await;
    for path in ["/nowhere", "/fast"] {
        let body = EVIL.repeat(20_000);
        let known = format!(
            "POST {path} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let chunked = format!(
            "POST {path} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        for request in [known, chunked] {
            let answers = server.ask(request).await;
            assert_eq!(statuses(&answers).len(), 1, "{answers}");
        }
    }
}

#[tokio::test]
async fn tls_on_the_plain_port_gets_an_answer() {
    let server = Server::start(edge()).await;
    let answer = server
        .ask(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        .await;
    assert_eq!(statuses(&answer), [400]);
    assert!(answer.contains("TLS"), "{answer}");
}

#[tokio::test]
async fn a_request_in_many_pieces_is_answered() {
    let server = Server::start(edge()).await;
    let mut caller = server.connect().await;
    for _ in 0..3 {
        caller.dribble("POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 26\r\n\r\nabcdefghijklmnopqrstuvwxyz", 3).await;
        assert!(
            caller
                .read_until("xyz")
                .await
                .starts_with("HTTP/1.1 200 OK")
        );
    }
}
