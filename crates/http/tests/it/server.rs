//! A server for one test, and a caller that speaks in bytes.

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

/// Every wait of a test ends.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    goodbye: CancellationToken,
    tasks: TaskTracker,
    /// One message for each request to `/slow` that has begun, and one when it is dropped.
    pub(crate) slow: mpsc::UnboundedReceiver<&'static str>,
    release: CancellationToken,
}

#[derive(Clone)]
struct Slow {
    said: mpsc::UnboundedSender<&'static str>,
    release: CancellationToken,
}

struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send("over").ok();
    }
}

async fn slow(State(slow): State<Slow>) -> &'static str {
    let _dropped = Dropped(slow.said.clone());
    slow.said.send("begun").ok();
    slow.release.cancelled().await;
    "slow"
}

pub(crate) fn edge() -> EdgeConfig {
    EdgeConfig {
        max_connections: 100,
        header_timeout: Duration::from_secs(30),
        tls: None,
        request_metrics: Arc::default(),
    }
}

impl Server {
    pub(crate) async fn start(edge: EdgeConfig) -> Self {
        let (said, heard) = mpsc::unbounded_channel();
        let (stop, goodbye, release) = (
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
            .with_state(Slow {
                said,
                release: release.clone(),
            });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = TaskTracker::new();
        tasks.spawn(serve(listener, router, edge, stop.clone(), goodbye.clone()));
        tasks.close();
        Self {
            address,
            stop,
            goodbye,
            tasks,
            slow: heard,
            release,
        }
    }

    pub(crate) async fn connect(&self) -> Caller {
        Caller(TcpStream::connect(self.address).await.unwrap())
    }

    /// All that is answered to these bytes until the server hangs up.
    pub(crate) async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut caller = self.connect().await;
        caller.send(bytes).await;
        caller.rest().await
    }

    pub(crate) async fn heard(&mut self, what: &str) {
        let said = tokio::time::timeout(PATIENCE, self.slow.recv()).await;
        assert_eq!(said.expect("in time"), Some(what));
    }

    pub(crate) fn release(&self) {
        self.release.cancel();
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) fn say_goodbye(&self) {
        self.goodbye.cancel();
    }

    pub(crate) async fn ended(&self) {
        tokio::time::timeout(PATIENCE, self.tasks.wait())
            .await
            .expect("the server ends");
    }
}

pub(crate) struct Caller(TcpStream);

impl Caller {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends in pieces of this many bytes, each in a packet of its own.
    pub(crate) async fn dribble(&mut self, bytes: impl AsRef<[u8]>, piece: usize) {
        self.0.set_nodelay(true).unwrap();
        for piece in bytes.as_ref().chunks(piece) {
            self.send(piece).await;
            tokio::task::yield_now().await;
        }
    }

    /// Reads until these words have come.
    pub(crate) async fn read_until(&mut self, words: &str) -> String {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains(words) {
            let mut piece = [0; 1024];
            let len = tokio::time::timeout(PATIENCE, self.0.read(&mut piece))
                .await
                .expect("an answer in time")
                .unwrap();
            assert_ne!(len, 0, "it ended after {:?}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..len]);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Reads until the server hangs up, in an orderly way.
    pub(crate) async fn rest(&mut self) -> String {
        let mut all = Vec::new();
        tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut all))
            .await
            .expect("an end in time")
            .expect("no reset");
        String::from_utf8(all).unwrap()
    }
}

/// The statuses of all answers in a text.
pub(crate) fn statuses(answers: &str) -> Vec<u16> {
    answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer[..3].parse().unwrap())
        .collect()
}
