//! Dropping a future or a body reaches the backend.

use http_body_util::BodyExt;
use hyper::Request;

use super::backend::{Backend, endless, get, pool, post, soon};

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let (backend, pool) = (Backend::start().await, pool());
    for request in [
        get("/"),
        post("/", "body"),
        Request::post("/").body(endless("part")).unwrap(),
    ] {
        let sending = pool.send(&backend.address, request);
        let accepted = tokio::select! {
            biased;
            accepted = async {
                let mut accepted = backend.accept().await;
                accepted.read_head().await;
                accepted
            } => accepted,
            response = sending => panic!("{response:?}"),
        };
        accepted.closed().await;
    }
}

#[tokio::test]
async fn dropping_the_body_closes_the_connection() {
    let (backend, pool) = (Backend::start().await, pool());
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    let (sent, accepted) = tokio::join!(pool.send(&backend.address, get("/")), backend.serve(head));
    let mut body = sent.unwrap().into_body();
    soon(body.frame()).await.unwrap().unwrap();
    drop(body);
    accepted.closed().await;
}
