//! Connections that become WebSockets.

use std::time::Duration;

use axum::body::Body;
use futures_util::{SinkExt, StreamExt};
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tidegate_http::edge::{EdgeConfig, EdgeService};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::task::TaskTracker;

use crate::server::{Server, config, statuses};

const HANDSHAKE: &str =
    "GET /raw HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// Sends back what it receives: bytes on `/raw`, messages elsewhere.
struct Echo {
    tasks: TaskTracker,
}

impl EdgeService for Echo {
    async fn call(&self, mut request: Request<Body>) -> Response<Body> {
        if request.uri().path() == "/fast" {
            return Response::new(Body::from("fast"));
        }
        let is_raw = request.uri().path() == "/raw";
        let accept = request
            .headers()
            .get("sec-websocket-key")
            .map(|key| derive_accept_key(key.as_bytes()))
            .unwrap_or_default();
        let upgrade = hyper::upgrade::on(&mut request);
        self.tasks.spawn(async move {
            let Ok(upgraded) = upgrade.await else {
                return;
            };
            let mut stream = TokioIo::new(upgraded);
            if is_raw {
                let (mut reader, mut writer) = tokio::io::split(stream);
                if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                    writer.write_all(b"bye").await.ok();
                    writer.shutdown().await.ok();
                }
            } else {
                let mut socket =
                    WebSocketStream::from_raw_socket(&mut stream, Role::Server, None).await;
                while let Some(Ok(message)) = socket.next().await {
                    if (message.is_text() || message.is_binary())
                        && socket.send(message).await.is_err()
                    {
                        break;
                    }
                }
            }
        });
        let response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header("sec-websocket-accept", accept);
        response.body(Body::empty()).unwrap()
    }
}

async fn start(config: EdgeConfig) -> (Server, TaskTracker) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = TaskTracker::new();
    let echo = Echo {
        tasks: tasks.clone(),
    };
    (Server::serve(listener, echo, config), tasks)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("an answer in time")
}

#[tokio::test]
async fn a_websocket_client_gets_its_messages_back() {
    let (server, _tasks) = start(config()).await;
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut socket, response) = within(client_async("ws://localhost/chat", stream))
        .await
        .unwrap();
    assert_eq!(response.status(), 101);
    for message in [
        Message::text("hello"),
        Message::binary(vec![0, 1, 255]),
        Message::binary(vec![7; 1 << 20]),
    ] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(within(socket.next()).await.unwrap().unwrap(), message);
    }
    let ping = Bytes::from_static(b"are you there");
    socket.send(Message::Ping(ping.clone())).await.unwrap();
    let pong = within(socket.next()).await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong(ping));
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "done".into(),
    };
    socket.close(Some(frame.clone())).await.unwrap();
    let closed = within(socket.next()).await.unwrap().unwrap();
    assert_eq!(closed, Message::Close(Some(frame)));
    assert!(within(socket.next()).await.is_none());
}

#[tokio::test]
async fn bytes_after_the_upgrade_are_not_checked_and_a_half_close_is_passed_on() {
    let (server, tasks) = start(config()).await;
    let mut client = server.connect().await;
    client.send(HANDSHAKE).await;
    client.read_until("\r\n\r\n").await;
    let ambiguous = "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n";
    client.send(ambiguous).await;
    assert_eq!(client.read_until("2\r\n\r\n").await, ambiguous);
    client.send("\0\x01 last").await;
    client.close_sending().await;
    assert_eq!(client.read_to_end().await, "\0\x01 lastbye");
    server.stop();
    server.wait_for_end().await;
    tasks.close();
    within(tasks.wait()).await;
}

#[tokio::test]
async fn bytes_that_follow_the_handshake_at_once_are_lost_or_refused_but_never_checked_later() {
    let (server, _tasks) = start(config()).await;
    let mut client = server.connect().await;
    // A client must wait for the response to its handshake.
    client.send(format!("{HANDSHAKE}\0\x01early")).await;
    let response = client.read_to_end().await;
    assert!(!response.contains("early"), "{response}");
}

#[tokio::test]
async fn other_upgrades_are_not_passed_to_the_service() {
    let (server, tasks) = start(config()).await;
    for head in [
        "GET /raw HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        "POST /raw HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "GET /raw HTTP/1.1\r\nupgrade: websocket\r\n\r\n",
    ] {
        let mut client = server.connect().await;
        client.send(head).await;
        let response = client.read_to_end().await;
        assert_eq!(statuses(&response), [101], "the service answers so");
        assert!(!response.contains("bye"), "{response}");
    }
    tasks.close();
    within(tasks.wait()).await;
}

#[tokio::test]
async fn a_refused_upgrade_leaves_an_ordinary_connection() {
    let (server, _tasks) = start(config()).await;
    let upgrade = HANDSHAKE.replace("/raw", "/fast");
    let mut client = server.connect().await;
    client.send(&upgrade).await;
    client.read_until("fast").await;
    client.send(format!("{upgrade}\0bad\r\n\r\n")).await;
    assert_eq!(statuses(&client.read_to_end().await), [200, 400]);
}

#[tokio::test]
async fn a_websocket_counts_as_a_connection() {
    let (server, _tasks) = start(EdgeConfig {
        max_connections: 1,
        ..config()
    })
    .await;
    let mut client = server.connect().await;
    client.send(HANDSHAKE).await;
    client.read_until("\r\n\r\n").await;
    let mut second = server.connect().await;
    second.send("GET /fast HTTP/1.1\r\n\r\n").await;
    let waited = tokio::time::timeout(Duration::from_millis(200), second.read_until("fast")).await;
    assert!(waited.is_err(), "the second connection waits");
    drop(client);
    second.read_until("fast").await;
}

#[tokio::test]
async fn a_stop_leaves_websockets_open_and_an_abort_ends_them() {
    let (server, tasks) = start(config()).await;
    let mut client = server.connect().await;
    client.send(HANDSHAKE).await;
    client.read_until("\r\n\r\n").await;
    server.stop();
    client.send("still here").await;
    assert_eq!(client.read_until("here").await, "still here");
    server.abort();
    assert_eq!(client.read_to_end().await, "");
    server.wait_for_end().await;
    tasks.close();
    within(tasks.wait()).await;
}
