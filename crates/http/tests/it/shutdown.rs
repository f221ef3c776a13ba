//! How connections end: drain, graceful stop, abort, and a client that disconnects.

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

#[tokio::test]
async fn a_disconnect_is_noticed_while_a_body_is_unread() {
    let mut server = Server::start(config()).await;
    for (framing, body) in [
        ("content-length: 4", "body".to_owned()),
        ("content-length: 4", "bo".to_owned()),
        ("content-length: 1000000", "x".repeat(30_000)),
        ("transfer-encoding: chunked", "4\r\nbody\r\n".to_owned()),
        ("content-length: 4\r\nexpect: 100-continue", String::new()),
    ] {
        let mut client = server.connect().await;
        client
            .send(format!("POST /slow HTTP/1.1\r\n{framing}\r\n\r\n"))
            .await;
        client.send(body).await;
        server.expect_event("started").await;
        drop(client);
        server.expect_event("dropped").await;
    }
}

#[tokio::test]
async fn a_disconnect_is_noticed_behind_the_next_request() {
    let mut server = Server::start(config()).await;
    let mut client = server.connect().await;
    client
        .send("GET /slow HTTP/1.1\r\n\r\nGET /fast HTTP/1.1\r\n\r\n")
        .await;
    server.expect_event("started").await;
    drop(client);
    server.expect_event("dropped").await;
}

#[tokio::test]
async fn a_disconnect_is_noticed_during_an_idle_stream() {
    let mut server = Server::start(config()).await;
    for request in [
        "GET /stream HTTP/1.1\r\n\r\n",
        "POST /stream HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody",
        "POST /stream HTTP/1.1\r\ncontent-length: 1000000\r\n\r\nbody",
        "POST /stream HTTP/1.1\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n",
    ] {
        let mut client = server.connect().await;
        client.send(request).await;
        server.expect_event("started").await;
        client.read_until("data: 1").await;
        drop(client);
        server.expect_event("dropped").await;
    }
}

#[tokio::test]
async fn a_slow_handler_that_reads_its_body_late_gets_it() {
    let mut server = Server::start(config()).await;
    let mut client = server.connect().await;
    client
        .send("POST /slow HTTP/1.1\r\ncontent-length: 4\r\n\r\nbo")
        .await;
    server.expect_event("started").await;
    // Longer than the edge waits before it watches the socket.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    client.send("dy").await;
    server.release();
    assert!(client.read_until("slow").await.contains("200 OK"));
    client.send("GET /fast HTTP/1.1\r\n\r\n").await;
    client.read_until("fast").await;
}

#[tokio::test]
async fn a_drain_accepts_connections_and_closes_them_after_their_responses() {
    let mut server = Server::start(config()).await;
    let mut open = server.connect().await;
    open.send("GET /fast HTTP/1.1\r\n\r\n").await;
    open.read_until("fast").await;
    let mut busy = server.connect().await;
    busy.send("GET /stream HTTP/1.1\r\n\r\n").await;
    server.expect_event("started").await;
    busy.read_until("data: 1").await;

    server.begin_drain();

    for client in [&mut open, &mut server.connect().await] {
        client.send("GET /fast HTTP/1.1\r\n\r\n").await;
        let response = client.read_to_end().await;
        assert_eq!(statuses(&response), [200]);
        assert!(response.contains("connection: close\r\n"), "{response}");
    }
    server.stop();
    assert!(
        tokio::net::TcpStream::connect(server.address())
            .await
            .is_err(),
        "no connection is accepted after the drain"
    );
    server.release();
    assert!(busy.read_to_end().await.contains("data: 2"));
    server.wait_for_end().await;
}
