//! Connections on threads with an event loop of their own.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidegate_http::edge::{EdgeConfig, EventLoops};
use tokio::net::TcpListener;

use crate::server::{Server, config, statuses};

fn with_two_loops() -> EdgeConfig {
    EdgeConfig {
        event_loops: Some(Arc::new(EventLoops::start(2).unwrap())),
        ..config()
    }
}

#[tokio::test]
async fn a_connection_stays_on_one_of_the_threads() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = || async { format!("{}.", std::thread::current().name().unwrap_or("none")) };
    let routes = Router::new().route("/thread", get(name));
    let server = Server::serve(listener, routes, with_two_loops());
    let mut clients = [server.connect().await, server.connect().await];
    let mut threads = Vec::new();
    for _ in 0..3 {
        for client in &mut clients {
            client.send("GET /thread HTTP/1.1\r\n\r\n").await;
            let response = client.read_until(".").await;
            threads.push(response.rsplit("\r\n").next().unwrap().to_owned());
        }
    }
    threads[..2].sort();
    assert_eq!(threads[..2], ["event-loop-0.", "event-loop-1."]);
    for pair in threads[2..].chunks(2) {
        assert_ne!(pair[0], pair[1]);
    }
}

#[tokio::test]
async fn a_stop_finishes_the_open_requests_of_the_threads() {
    let mut server = Server::start(with_two_loops()).await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    server.stop();
    server.release();
    assert_eq!(statuses(&busy.read_to_end().await), [200]);
    server.wait_for_end().await;
}

#[tokio::test]
async fn a_disconnect_is_noticed_on_the_threads() {
    let mut server = Server::start(with_two_loops()).await;
    let mut client = server.connect().await;
    client.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    drop(client);
    server.expect_event("dropped").await;
}
