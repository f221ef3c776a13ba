//! A backend whose every byte a test decides, and requests to it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::upstream::{
    UpstreamAddress, UpstreamBody, UpstreamConfig, UpstreamError, UpstreamPool,
    UpstreamRequestBody, UpstreamScheme, UpstreamVersion,
};

/// The limit of every wait in a test.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for `future`, at most [`TIMEOUT`].
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("the wait ends in time")
}

/// A listening backend.
pub(super) struct Backend {
    listener: TcpListener,
    pub(super) address: UpstreamAddress,
}

impl Backend {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = UpstreamAddress {
            scheme: UpstreamScheme::Http,
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            ip: None,
            version: UpstreamVersion::Http1,
        };
        Self { listener, address }
    }

    pub(super) async fn accept(&self) -> Accepted {
        let (stream, _) = soon(self.listener.accept()).await.unwrap();
        Accepted {
            stream,
            unread: Vec::new(),
        }
    }

    /// Accepts a connection, reads one request and responds to it.
    pub(super) async fn serve(&self, response: &str) -> Accepted {
        let mut accepted = self.accept().await;
        accepted.read_head().await;
        accepted.write(response).await;
        accepted
    }
}

/// An accepted connection.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
}

impl Accepted {
    /// Reads the head of a request.
    pub(super) async fn read_head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    /// Reads up to and with this text.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let known = String::from_utf8_lossy(&self.unread);
            if let Some(at) = known.find(text) {
                let taken: Vec<u8> = self.unread.drain(..at + text.len()).collect();
                return String::from_utf8(taken).unwrap();
            }
            let mut piece = [0; 4096];
            let len = soon(self.stream.read(&mut piece)).await.unwrap();
            assert_ne!(len, 0, "the connection ended after {known:?}");
            self.unread.extend_from_slice(&piece[..len]);
        }
    }

    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Waits until the other side has closed the connection. Returns what arrived before.
    pub(super) async fn closed(mut self) -> String {
        let mut rest = std::mem::take(&mut self.unread);
        // A reset is a close too: the pool drops connections with unread bytes.
        soon(self.stream.read_to_end(&mut rest)).await.ok();
        String::from_utf8(rest).unwrap()
    }
}

/// A pool with the default settings.
pub(super) fn pool() -> UpstreamPool {
    pool_with(UpstreamConfig {
        // Tests that run on a busy machine keep connections for longer.
        idle_limit: TIMEOUT,
        connect_timeout: TIMEOUT,
        ..UpstreamConfig::default()
    })
}

pub(super) fn pool_with(config: UpstreamConfig) -> UpstreamPool {
    UpstreamPool::new(config, &TaskTracker::new())
}

pub(super) fn get(target: &str) -> Request<UpstreamRequestBody> {
    Request::get(target)
        .body(UpstreamRequestBody::Empty)
        .unwrap()
}

pub(super) fn post(target: &str, body: &'static str) -> Request<UpstreamRequestBody> {
    Request::builder()
        .method(Method::POST)
        .uri(target)
        .body(UpstreamRequestBody::Full(Bytes::from_static(
            body.as_bytes(),
        )))
        .unwrap()
}

/// A body that has sent this much and goes on forever.
pub(super) fn endless(first: &'static str) -> UpstreamRequestBody {
    use futures_util::StreamExt;
    let frames = futures_util::stream::iter([Ok(hyper::body::Frame::data(Bytes::from_static(
        first.as_bytes(),
    )))])
    .chain(futures_util::stream::pending());
    UpstreamRequestBody::Stream(Box::pin(http_body_util::StreamBody::new(frames)))
}

/// The whole body of a response.
pub(super) async fn text(response: Response<UpstreamBody>) -> Result<String, UpstreamError> {
    let collected = soon(response.into_body().collect()).await?;
    Ok(String::from_utf8(collected.to_bytes().to_vec()).unwrap())
}
