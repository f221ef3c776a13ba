//! How connections end: graceful stop, abort, and a client that disconnects.

use crate::server::{Server, config, statuses};

#[tokio::test]
async fn a_stop_finishes_open_requests_and_closes_idle_connections() {
    let mut server = Server::start(config()).await;
    let mut idle = server.connect().await;
    idle.send("GET /fast HTTP/1.1\r\n\r\n").await;
    idle.read_until("fast").await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;

    server.stop();

    assert_eq!(idle.read_to_end().await, "");
    server.release();
    assert_eq!(statuses(&busy.read_to_end().await), [200]);
    server.wait_for_end().await;
}

#[tokio::test]
async fn an_abort_ends_open_requests() {
    let mut server = Server::start(config()).await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    server.stop();
    server.abort();
    server.expect_event("dropped").await;
    server.wait_for_end().await;
}

#[tokio::test]
async fn a_disconnect_is_noticed() {
    let mut server = Server::start(config()).await;
    let mut client = server.connect().await;
    client.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    drop(client);
    server.expect_event("dropped").await;
}
