//! When a connection serves another request, and when it does not.

use std::time::Duration;

use hyper::Request;

use super::backend::{Backend, endless, get, pool, pool_with, post, text};
use crate::upstream::{UpstreamConfig, UpstreamError};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

#[tokio::test]
async fn a_connection_is_reused_after_the_body_was_read() {
    for response in [OK, CHUNKED, "HTTP/1.1 204 No Content\r\n\r\n"] {
        let (backend, pool) = (Backend::start().await, pool());
        let (first, mut accepted) = tokio::join!(
            pool.send(&backend.address, get("/1")),
            backend.serve(response)
        );
        text(first.unwrap()).await.unwrap();
        let server = async {
            assert!(accepted.read_head().await.starts_with("GET /2 "));
            accepted.write(OK).await;
        };
        let (second, ()) = tokio::join!(pool.send(&backend.address, get("/2")), server);
        assert_eq!(text(second.unwrap()).await.unwrap(), "ok", "{response}");
    }
}

#[tokio::test]
async fn a_reused_connection_that_was_closed_gets_one_fresh_try() {
    let (backend, pool) = (Backend::start().await, pool());
    let (first, mut accepted) =
        tokio::join!(pool.send(&backend.address, get("/1")), backend.serve(OK));
    text(first.unwrap()).await.unwrap();
    let server = async {
        // The backend closes the connection while the request is on its way.
        accepted.read_until("body").await;
        drop(accepted);
        let mut fresh = backend.accept().await;
        let again = fresh.read_until("body").await;
        fresh.write(OK).await;
        (fresh, again)
    };
    let (second, (mut fresh, again)) =
        tokio::join!(pool.send(&backend.address, post("/2", "body")), server);
    assert!(again.starts_with("POST /2 "), "{again}");
    assert_eq!(text(second.unwrap()).await.unwrap(), "ok");

    // The fresh connection fails too: there is no third one.
    let server = async {
        fresh.read_until("body").await;
        drop(fresh);
        backend.accept().await.read_until("body").await;
    };
    let (third, ()) = tokio::join!(pool.send(&backend.address, post("/3", "body")), server);
    let error = third.unwrap_err();
    assert!(
        matches!(error, UpstreamError::ClosedBeforeResponse { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_request_is_not_sent_again_after_a_byte_of_a_response() {
    let (backend, pool) = (Backend::start().await, pool());
    let (first, mut accepted) =
        tokio::join!(pool.send(&backend.address, get("/1")), backend.serve(OK));
    text(first.unwrap()).await.unwrap();
    let server = async {
        accepted.read_head().await;
        accepted.write("HTTP/1.1 2").await;
        drop(accepted);
    };
    let (second, ()) = tokio::join!(pool.send(&backend.address, get("/2")), server);
    let error = second.unwrap_err();
    assert!(
        matches!(error, UpstreamError::ClosedBeforeResponse { .. }),
        "{error:?}"
    );
    // The next connection is that of the next request.
    let server = async {
        let mut accepted = backend.accept().await;
        let head = accepted.read_head().await;
        accepted.write(OK).await;
        head
    };
    let (third, head) = tokio::join!(pool.send(&backend.address, get("/3")), server);
    assert!(head.starts_with("GET /3 "), "{head}");
    text(third.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_streamed_body_gets_a_fresh_connection() {
    let (backend, pool) = (Backend::start().await, pool());
    let (first, idle) = tokio::join!(pool.send(&backend.address, get("/1")), backend.serve(OK));
    text(first.unwrap()).await.unwrap();
    let request = Request::post("/2").body(endless("part")).unwrap();
    let (second, _fresh) = tokio::join!(pool.send(&backend.address, request), backend.serve(OK));
    assert_eq!(text(second.unwrap()).await.unwrap(), "ok");
    drop(pool);
    assert_eq!(
        idle.closed().await,
        "",
        "nothing was sent on the idle connection"
    );
}

#[tokio::test]
async fn a_connection_with_an_unread_body_is_closed() {
    let (backend, pool) = (Backend::start().await, pool());
    for response in [OK, CHUNKED] {
        let (sent, accepted) = tokio::join!(
            pool.send(&backend.address, get("/")),
            backend.serve(response)
        );
        drop(sent.unwrap());
        accepted.closed().await;
    }
}

#[tokio::test]
async fn a_backend_that_announces_the_close_is_not_asked_again() {
    let (backend, pool) = (Backend::start().await, pool());
    for _ in 0..2 {
        let close = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
        let (sent, accepted) =
            tokio::join!(pool.send(&backend.address, get("/")), backend.serve(close));
        assert_eq!(text(sent.unwrap()).await.unwrap(), "ok");
        accepted.closed().await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_limit() {
    let backend = Backend::start().await;
    let pool = pool_with(UpstreamConfig {
        idle_limit: Duration::from_millis(50),
        ..UpstreamConfig::default()
    });
    let (sent, accepted) = tokio::join!(pool.send(&backend.address, get("/")), backend.serve(OK));
    text(sent.unwrap()).await.unwrap();
    accepted.closed().await;
}

#[tokio::test]
async fn surplus_idle_connections_are_closed() {
    let backend = Backend::start().await;
    let pool = pool_with(UpstreamConfig {
        max_idle: 1,
        idle_limit: Duration::from_secs(60),
        ..UpstreamConfig::default()
    });
    let server = async {
        let mut both = [backend.accept().await, backend.accept().await];
        for accepted in &mut both {
            accepted.read_head().await;
            accepted.write(OK).await;
        }
        both
    };
    let (first, second, [one, other]) = tokio::join!(
        pool.send(&backend.address, get("/")),
        pool.send(&backend.address, get("/")),
        server
    );
    text(first.unwrap()).await.unwrap();
    text(second.unwrap()).await.unwrap();
    tokio::select! {
        _ = one.closed() => {}
        _ = other.closed() => {}
    }
}

/// A runtime beside the one of the test.
fn other_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[tokio::test]
async fn each_runtime_reuses_its_own_connection_first() {
    let (backend, pool) = (Backend::start().await, pool());
    let other = other_runtime();
    // Both at the same time, so that there are two connections.
    let (other_pool, address) = (pool.clone(), backend.address.clone());
    let on_other = other.spawn(async move { other_pool.send(&address, get("/2")).await.unwrap() });
    let mut of_other = backend.accept().await;
    of_other.read_head().await;
    let (first, mut own) = tokio::join!(pool.send(&backend.address, get("/1")), backend.serve(OK));
    text(first.unwrap()).await.unwrap();
    of_other.write(OK).await;
    text(on_other.await.unwrap()).await.unwrap();
    // The connection of the other runtime was used last.
    let server = async {
        assert!(own.read_head().await.starts_with("GET /3 "));
        own.write(OK).await;
    };
    let (third, ()) = tokio::join!(pool.send(&backend.address, get("/3")), server);
    assert_eq!(text(third.unwrap()).await.unwrap(), "ok");
    other.shutdown_background();
}

#[tokio::test]
async fn an_idle_connection_moves_to_the_runtime_of_the_next_request() {
    let (backend, pool) = (Backend::start().await, pool());
    let first_runtime = other_runtime();
    let (first_pool, address) = (pool.clone(), backend.address.clone());
    let first = first_runtime.spawn(async move {
        let response = first_pool.send(&address, get("/1")).await.unwrap();
        text(response).await.unwrap();
    });
    let mut accepted = backend.serve(OK).await;
    first.await.unwrap();
    // A backend may serve one connection at a time, so it would not accept another one.
    let server = async {
        assert!(accepted.read_head().await.starts_with("GET /2 "));
        accepted.write(OK).await;
        accepted
    };
    let (second, mut accepted) = tokio::join!(pool.send(&backend.address, get("/2")), server);
    assert_eq!(text(second.unwrap()).await.unwrap(), "ok");
    // It needs nothing of the runtime that has opened it.
    first_runtime.shutdown_background();
    let server = async {
        assert!(accepted.read_head().await.starts_with("GET /3 "));
        accepted.write(OK).await;
    };
    let (third, ()) = tokio::join!(pool.send(&backend.address, get("/3")), server);
    assert_eq!(text(third.unwrap()).await.unwrap(), "ok");
}
