//! A server for one test, and a client that sends raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures_util::StreamExt;
use tidegate_http::edge::{EdgeConfig, EdgeControl, EdgeListeners, EdgeService, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The limit of every wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    address: SocketAddr,
    control: EdgeControl,
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

/// A stream that sends one event and then nothing until the release.
async fn stream(State(slow): State<SlowHandler>) -> axum::body::Body {
    let on_drop = SendOnDrop(slow.events.clone());
    slow.events.send("started").ok();
    let events = futures_util::stream::once(async { Ok::<_, std::io::Error>("data: 1\n\n") })
        .chain(futures_util::stream::once(async move {
            slow.release.cancelled().await;
            drop(on_drop);
            Ok("data: 2\n\n")
        }));
    axum::body::Body::from_stream(events)
}

pub(crate) fn config() -> EdgeConfig {
    EdgeConfig {
        max_connections: 100,
        header_timeout: Duration::from_secs(30),
        header_timeout_flag: None,
        tls: None,
        origin_policy: None,
        request_metrics: Arc::default(),
        event_loops: None,
    }
}

impl Server {
    pub(crate) async fn start(config: EdgeConfig) -> Self {
        let (events, slow_events) = mpsc::unbounded_channel();
        let release = CancellationToken::new();
        let router = Router::new()
            .route("/fast", get(|| async { "fast" }))
            .route("/echo", post(|body: Bytes| async { body }))
            .route(
                "/deny",
                post(|| async { (StatusCode::UNAUTHORIZED, "denied") }),
            )
            .route("/slow", get(slow).post(slow))
            .route("/stream", get(stream).post(stream))
            .with_state(SlowHandler {
                events,
                release: release.clone(),
            });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            slow_events,
            release,
            ..Self::serve(listener, router, config)
        }
    }

    /// Serves another service than the router of this file.
    pub(crate) fn serve(
        listeners: impl Into<EdgeListeners>,
        service: impl EdgeService,
        config: EdgeConfig,
    ) -> Self {
        let listeners = listeners.into();
        let address = listeners.tcp.local_addr().unwrap();
        let (control, tasks) = (EdgeControl::default(), TaskTracker::new());
        tasks.spawn(serve(listeners, service, config, control.clone()));
        tasks.close();
        Self {
            address,
            control,
            tasks,
            slow_events: mpsc::unbounded_channel().1,
            release: CancellationToken::new(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
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

    pub(crate) fn begin_drain(&self) {
        self.control.begin_drain();
    }

    pub(crate) fn stop(&self) {
        self.control.stop();
    }

    pub(crate) fn abort(&self) {
        self.control.abort();
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

    /// Closes the sending side.
    pub(crate) async fn close_sending(&mut self) {
        self.0.shutdown().await.unwrap();
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
