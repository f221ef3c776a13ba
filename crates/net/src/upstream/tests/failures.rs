//! Each way to fail has its own error.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::backend::{Backend, get, pool, pool_with, soon, text};
use crate::upstream::{
    UpstreamAddress, UpstreamConfig, UpstreamError, UpstreamRequestBody, UpstreamScheme,
    UpstreamVersion,
};

fn address(host: &str, port: u16) -> UpstreamAddress {
    UpstreamAddress {
        scheme: UpstreamScheme::Http,
        host: host.into(),
        port,
        ip: None,
        version: UpstreamVersion::Http1,
    }
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = unused.local_addr().unwrap().port();
    drop(unused);
    let error = soon(pool().send(&address("127.0.0.1", port), get("/")))
        .await
        .unwrap_err();
    assert!(error.is_before_request());
    let UpstreamError::Connect { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(source.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(
        error.to_string(),
        format!("failed to connect to `http://127.0.0.1:{port}`")
    );
}

#[tokio::test]
async fn a_backend_that_does_not_accept_is_a_timeout() {
    let limit = Duration::from_millis(200);
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let at = full.local_addr().unwrap();
    // The system accepts connections for the backend until its queue is full.
    let mut waiting = Vec::new();
    while let Ok(connected) = tokio::time::timeout(limit, TcpStream::connect(at)).await {
        waiting.push(connected.unwrap());
    }
    let pool = pool_with(UpstreamConfig {
        connect_timeout: limit,
        ..UpstreamConfig::default()
    });
    let error = soon(pool.send(&address("127.0.0.1", at.port()), get("/")))
        .await
        .unwrap_err();
    assert!(
        matches!(error, UpstreamError::ConnectTimeout { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_host_without_an_address_is_a_resolve_error() {
    let error = soon(pool().send(&address("no-such-host.invalid", 80), get("/")))
        .await
        .unwrap_err();
    assert!(matches!(error, UpstreamError::Resolve { .. }), "{error:?}");
}

#[tokio::test]
async fn every_address_of_a_host_is_tried() {
    // `localhost` may be ::1 first, where nothing listens.
    let backend = Backend::start().await;
    let named = address("localhost", backend.address.port);
    let pool = pool();
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (sent, _accepted) = tokio::join!(pool.send(&named, get("/")), backend.serve(ok));
    assert_eq!(text(sent.unwrap()).await.unwrap(), "ok");
}

#[tokio::test]
async fn a_close_before_the_response_has_its_own_error() {
    let (backend, pool) = (Backend::start().await, pool());
    for partial in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let server = async { drop(backend.serve(partial).await) };
        let (sent, ()) = tokio::join!(pool.send(&backend.address, get("/")), server);
        let error = sent.unwrap_err();
        assert!(
            matches!(error, UpstreamError::ClosedBeforeResponse { .. }),
            "{error:?}"
        );
        assert!(!error.is_before_request());
    }
}

#[tokio::test]
async fn bytes_that_are_no_response_have_their_own_error() {
    let (backend, pool) = (Backend::start().await, pool());
    for invalid in [
        "SSH-2.0-OpenSSH_9.7\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3, 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n",
    ] {
        let (sent, _accepted) = tokio::join!(
            pool.send(&backend.address, get("/")),
            backend.serve(invalid)
        );
        let error = sent.unwrap_err();
        assert!(
            matches!(error, UpstreamError::InvalidResponse { .. }),
            "{invalid:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_cut_body_is_an_error_after_the_bytes_that_arrived() {
    let (backend, pool) = (Backend::start().await, pool());
    for cut in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
    ] {
        let (sent, accepted) =
            tokio::join!(pool.send(&backend.address, get("/")), backend.serve(cut));
        let mut body = sent.unwrap().into_body();
        let first = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "abc");
        drop(accepted);
        let error = soon(body.frame()).await.unwrap().unwrap_err();
        assert!(
            matches!(error, UpstreamError::ResetInBody { .. }),
            "{cut:?}: {error:?}"
        );
        assert!(soon(body.frame()).await.is_none());
    }
}

#[tokio::test]
async fn a_request_body_that_fails_is_not_the_fault_of_the_backend() {
    let (backend, pool) = (Backend::start().await, pool());
    let frames = futures_util::stream::iter([
        Ok(hyper::body::Frame::data(Bytes::from_static(b"part"))),
        Err("the client has gone".into()),
    ]);
    let body = UpstreamRequestBody::Stream(Box::pin(http_body_util::StreamBody::new(frames)));
    let request = Request::post("/").body(body).unwrap();
    let (sent, accepted) = tokio::join!(pool.send(&backend.address, request), backend.accept());
    let error = sent.unwrap_err();
    assert!(
        matches!(error, UpstreamError::RequestBody { .. }),
        "{error:?}"
    );
    assert!(
        !accepted.closed().await.ends_with("0\r\n\r\n"),
        "no end is sent"
    );
}
