//! What is sent to a backend, and how its responses are read.

use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use hyper::{Method, Request};

use super::backend::{Backend, get, pool, post, soon, text};
use crate::upstream::{UpstreamAddress, UpstreamRequestBody};

#[tokio::test]
async fn a_request_names_the_host_and_has_the_length_of_its_body() {
    let (backend, pool) = (Backend::start().await, pool());
    let authority = backend.address.authority();
    let mut wrong = post("/b", "body");
    wrong.headers_mut().insert(CONTENT_LENGTH, 999.into());
    wrong
        .headers_mut()
        .insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
    wrong.headers_mut().insert(HOST, "other".parse().unwrap());
    let empty = Request::builder()
        .method(Method::POST)
        .uri("/c")
        .body(UpstreamRequestBody::Empty)
        .unwrap();

    let client = async {
        for request in [get("/a?x=1"), wrong, empty] {
            let response = pool.send(&backend.address, request).await.unwrap();
            assert_eq!(text(response).await.unwrap(), "ok");
        }
    };
    let server = async {
        let mut accepted = backend.accept().await;
        let mut heads = Vec::new();
        for body in ["", "body", ""] {
            heads.push(accepted.read_head().await);
            accepted.read_until(body).await;
            accepted
                .write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .await;
        }
        heads
    };
    let ((), heads) = tokio::join!(client, server);
    assert_eq!(
        heads[0],
        format!("GET /a?x=1 HTTP/1.1\r\nhost: {authority}\r\n\r\n")
    );
    assert_eq!(
        heads[1],
        "POST /b HTTP/1.1\r\ncontent-length: 4\r\nhost: other\r\n\r\n"
    );
    assert!(heads[2].contains("content-length: 0\r\n"), "{}", heads[2]);
}

#[tokio::test]
async fn bodies_of_every_framing_are_read() {
    let (backend, pool) = (Backend::start().await, pool());
    for (response, body) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "hello",
        ),
        ("HTTP/1.1 500 Oops\r\n\r\nuntil the end", "until the end"),
        ("HTTP/1.0 200 OK\r\n\r\nold", "old"),
        ("HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", ""),
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 1\r\n\r\nx",
            "x",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "ok",
        ),
    ] {
        // Each backend closes its connection after the response.
        let request = Request::get("/")
            .header("connection", "close")
            .body(UpstreamRequestBody::Empty)
            .unwrap();
        let (sent, accepted) = tokio::join!(
            pool.send(&backend.address, request),
            backend.serve(response)
        );
        drop(accepted);
        assert_eq!(text(sent.unwrap()).await.unwrap(), body, "{response:?}");
    }
}

#[tokio::test]
async fn a_part_of_a_body_arrives_before_the_next_is_sent() {
    let (backend, pool) = (Backend::start().await, pool());
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: t\r\n\r\n";
    let (response, mut accepted) =
        tokio::join!(pool.send(&backend.address, get("/")), backend.serve(head));
    let mut body = response.unwrap().into_body();
    assert!(body.frame().now_or_never().is_none());
    for part in ["one", "two"] {
        accepted.write(format!("3\r\n{part}\r\n")).await;
        let frame = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), part);
    }
    accepted.write("0\r\nt: 1\r\n\r\n").await;
    let trailers = soon(body.frame()).await.unwrap().unwrap();
    assert_eq!(trailers.trailers_ref().unwrap()["t"], "1");
    assert!(soon(body.frame()).await.is_none());
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_response_may_come_before_the_body_of_the_request_is_sent() {
    let (backend, pool) = (Backend::start().await, pool());
    let request = Request::post("/")
        .body(super::backend::endless("part"))
        .unwrap();
    let server = async {
        let mut accepted = backend.accept().await;
        let head = accepted.read_until("part\r\n").await;
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        accepted
            .write("HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
            .await;
        accepted
    };
    let (response, accepted) = tokio::join!(pool.send(&backend.address, request), server);
    let response = response.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(text(response).await.unwrap(), "big");
    // The request is not complete, so the connection cannot be used again.
    accepted.closed().await;
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let (backend, pool) = (Backend::start().await, pool());
    let large: Vec<u8> = (0..4_000_000u32).map(|n| (n / 3) as u8).collect();
    let server = async {
        let mut accepted = backend.accept().await;
        accepted.read_head().await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", large.len());
        accepted.write(head).await;
        accepted.write(&large).await;
    };
    let client = async {
        let response = pool.send(&backend.address, get("/")).await.unwrap();
        soon(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes()
    };
    let ((), received) = tokio::join!(server, client);
    assert!(received == large, "{} bytes", received.len());
}

#[tokio::test]
async fn a_resolved_address_is_connected_to_and_the_host_is_named() {
    let backend = Backend::start().await;
    let address = UpstreamAddress {
        host: "gpu.invalid".into(),
        ip: Some("127.0.0.1".parse().unwrap()),
        ..backend.address.clone()
    };
    let server = async {
        let mut accepted = backend.accept().await;
        let head = accepted.read_head().await;
        accepted
            .write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await;
        head
    };
    let pool = pool();
    let (sent, head) = tokio::join!(pool.send(&address, get("/")), server);
    assert_eq!(sent.unwrap().status(), 200);
    let host = format!("host: gpu.invalid:{}\r\n", address.port);
    assert!(head.contains(&host), "{head}");
}
