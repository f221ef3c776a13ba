//! A Unix socket next to the port.

use axum::body::Body;
use hyper::{Request, Response};
use tidegate_http::access::Peer;
use tidegate_http::edge::{EdgeListeners, EdgeService, UnixSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

use crate::server::{Server, config};

/// Answers with the peer.
struct ShowPeer;

impl EdgeService for ShowPeer {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let peer = request.extensions().get::<Peer>().unwrap();
        Response::new(Body::from(format!("{peer} local={}", peer.is_local())))
    }
}

#[tokio::test]
async fn both_are_served_and_only_the_port_has_local_clients() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sock");
    let listeners = EdgeListeners {
        tcp: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        unix: Some(UnixSocket::bind(&path).unwrap()),
    };
    let server = Server::serve(listeners, ShowPeer, config());
    let request = "GET / HTTP/1.1\r\nconnection: close\r\n\r\n";
    let by_port = server.exchange(request).await;
    assert!(by_port.ends_with("local=true"), "{by_port}");

    let mut client = UnixStream::connect(&path).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut by_socket = String::new();
    client.read_to_string(&mut by_socket).await.unwrap();
    assert!(
        by_socket.ends_with("unix socket local=false"),
        "{by_socket}"
    );

    server.stop();
    server.wait_for_end().await;
    assert!(!path.exists());
}
