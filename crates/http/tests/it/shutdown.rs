//! How connections end.

use crate::server::{Server, edge, statuses};

#[tokio::test]
async fn a_stop_lets_open_requests_end_and_closes_idle_connections() {
    let mut server = Server::start(edge()).await;
    let mut idle = server.connect().await;
    idle.send("GET /fast HTTP/1.1\r\n\r\n").await;
    idle.read_until("fast").await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.heard("begun").await;

    server.stop();

    assert_eq!(idle.rest().await, "");
    server.release();
    assert_eq!(statuses(&busy.rest().await), [200]);
    server.ended().await;
}

#[tokio::test]
async fn a_goodbye_ends_what_is_open() {
    let mut server = Server::start(edge()).await;
    let mut busy = server.connect().await;
    busy.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.heard("begun").await;
    server.stop();
    server.say_goodbye();
    server.heard("over").await;
    server.ended().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_is_noticed() {
    let mut server = Server::start(edge()).await;
    let mut caller = server.connect().await;
    caller.send("GET /slow HTTP/1.1\r\n\r\n").await;
    server.heard("begun").await;
    drop(caller);
    server.heard("over").await;
}
