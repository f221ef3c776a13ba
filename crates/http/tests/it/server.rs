//! A server for one test, and a client that sends raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tidegate_http::edge::{EdgeConfig, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The limit of every wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    abort: CancellationToken,
    tasks: TaskTracker,
    /// `started` for each request to `/slow`, and `dropped` when its handler is dropped.
    pub(crate) slow_events: mpsc::UnboundedReceiver<&'static str>,
    release: CancellationToken,
}

#[derive(Clone)]
struct SlowHandler {
    events: mpsc::UnboundedSender<&'static str>,
    release: CancellationToken,
}

struct SendOnDrop(mpsc::UnboundedSender<&'static str>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        self.0.send("dropped").ok();
    }
}

async fn slow(State(slow): State<SlowHandler>) -> &'static str {
    let _on_drop = SendOnDrop(slow.events.clone());
    slow.events.send("started").ok();
    slow.release.cancelled().await;
    "slow"
}

pub(crate) fn config() -> EdgeConfig {
    EdgeConfig {
        max_connections: 100,
        header_timeout: Duration::from_secs(30),
        header_timeout_flag: None,
        tls: None,
        origin_policy: None,
        request_metrics: Arc::default(),
    }
}

impl Server {
    pub(crate) async fn start(config: EdgeConfig) -> Self {
        let (events, slow_events) = mpsc::unbounded_channel();
        let (stop, abort, release) = (
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        let router = Router::new()
            .route("/fast", get(|| async { "fast" }))
            .route("/echo", post(|body: Bytes| async { body }))
            .route(
                "/deny",
                post(|| async { (StatusCode::UNAUTHORIZED, "denied") }),
            )
            .route("/slow", get(slow))
            .with_state(SlowHandler {
                events,
                release: release.clone(),
            });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = TaskTracker::new();
        tasks.spawn(serve(listener, router, config, stop.clone(), abort.clone()));
        tasks.close();
        Self {
            address,
            stop,
            abort,
            tasks,
            slow_events,
            release,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// Sends these bytes and returns everything that the server sends until it closes the
    /// connection.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.read_to_end().await
    }

    /// Waits for the next event of `/slow`.
    pub(crate) async fn expect_event(&mut self, expected: &str) {
        let event = tokio::time::timeout(TIMEOUT, self.slow_events.recv()).await;
        assert_eq!(event.expect("an event in time"), Some(expected));
    }

    pub(crate) fn release(&self) {
        self.release.cancel();
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn abort(&self) {
        self.abort.cancel();
    }

    pub(crate) async fn wait_for_end(&self) {
        tokio::time::timeout(TIMEOUT, self.tasks.wait())
            .await
            .expect("the server ends in time");
    }
}

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends in pieces of this many bytes, each in its own packet.
    pub(crate) async fn send_in_pieces(&mut self, bytes: impl AsRef<[u8]>, piece: usize) {
        self.0.set_nodelay(true).unwrap();
        for piece in bytes.as_ref().chunks(piece) {
            self.send(piece).await;
            tokio::task::yield_now().await;
        }
    }

    /// Reads until this text has arrived.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains(text) {
            let mut piece = [0; 1024];
            let len = tokio::time::timeout(TIMEOUT, self.0.read(&mut piece))
                .await
                .expect("a response in time")
                .unwrap();
            assert_ne!(
                len,
                0,
                "the connection ended after {:?}",
                String::from_utf8_lossy(&all)
            );
            all.extend_from_slice(&piece[..len]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Reads until the server closes the connection without a reset.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut all = Vec::new();
        tokio::time::timeout(TIMEOUT, self.0.read_to_end(&mut all))
            .await
            .expect("the connection ends in time")
            .expect("the connection is not reset");
        String::from_utf8(all).unwrap()
    }
}

/// The statuses of all responses in a text.
pub(crate) fn statuses(responses: &str) -> Vec<u16> {
    responses
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|response| response[..3].parse().unwrap())
        .collect()
}
