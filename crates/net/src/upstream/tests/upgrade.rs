//! A response 101 gives the raw connection.

use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::backend::{Backend, get, pool, soon, text};
use crate::upstream::UpstreamRequestBody;

fn upgrade() -> Request<UpstreamRequestBody> {
    Request::get("/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(UpstreamRequestBody::Empty)
        .unwrap()
}

#[tokio::test]
async fn an_upgraded_connection_carries_raw_bytes_both_ways() {
    let (backend, pool) = (Backend::start().await, pool());
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nfirst";
    let (sent, mut accepted) = tokio::join!(
        pool.send(&backend.address, upgrade()),
        backend.serve(switched)
    );
    let response = sent.unwrap();
    assert_eq!(response.status(), 101);
    let mut stream = response
        .into_body()
        .into_upgraded()
        .expect("an upgraded connection");
    let mut bytes = [0; 5];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"first");
    accepted.write("later").await;
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"later");
    stream.write_all(b"hello").await.unwrap();
    accepted.read_until("hello").await;
    // Half-close: the other direction stays open.
    stream.shutdown().await.unwrap();
    accepted.write("still").await;
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"still");
    drop(stream);
    accepted.closed().await;
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response_of_a_fresh_connection() {
    let (backend, pool) = (Backend::start().await, pool());
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (first, _idle) = tokio::join!(pool.send(&backend.address, get("/")), backend.serve(ok));
    text(first.unwrap()).await.unwrap();
    let refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    let (sent, _fresh) = tokio::join!(
        pool.send(&backend.address, upgrade()),
        backend.serve(refused)
    );
    let response = sent.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(text(response).await.unwrap(), "no");
}
