//! HTTP/2 with prior knowledge, against hyper's server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::backend::{Backend, get, pool, post, soon, text};
use crate::upstream::{UpstreamAddress, UpstreamScheme, UpstreamVersion};

/// Sends when it is dropped.
struct OnDrop(Option<oneshot::Sender<()>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().map(|gone| gone.send(()));
    }
}

struct Http2Backend {
    address: UpstreamAddress,
    connections: Arc<AtomicUsize>,
    /// For each response of `/endless`: told when its body is dropped.
    endless: mpsc::UnboundedReceiver<oneshot::Receiver<()>>,
    _tasks: TaskTracker,
}

type ResponseBody = BoxBody<Bytes, Infallible>;

async fn respond(
    request: Request<Incoming>,
    started: mpsc::UnboundedSender<oneshot::Receiver<()>>,
) -> Result<Response<ResponseBody>, Infallible> {
    if request.uri().path() == "/endless" {
        let (gone, dropped) = oneshot::channel();
        started.send(dropped).ok();
        let guard = OnDrop(Some(gone));
        let frames = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"one")))])
            .chain(futures_util::stream::pending())
            .inspect(move |_| {
                let _held = &guard;
            });
        return Ok(Response::new(BodyExt::boxed(StreamBody::new(SyncStream(
            Box::pin(frames),
        )))));
    }
    let target = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let text = format!("{target} {}", String::from_utf8_lossy(&body));
    Ok(Response::new(Full::new(Bytes::from(text)).boxed()))
}

/// Makes a stream usable in a [`BoxBody`], which must be `Sync`.
struct SyncStream(
    std::pin::Pin<
        Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync>,
    >,
);

impl futures_util::Stream for SyncStream {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

async fn start() -> Http2Backend {
    start_with(Builder::new(TokioExecutor::new())).await
}

async fn start_with(server: Builder<TokioExecutor>) -> Http2Backend {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = UpstreamAddress {
        scheme: UpstreamScheme::Http,
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
        ip: None,
        version: UpstreamVersion::Http2,
    };
    let (started, endless) = mpsc::unbounded_channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let (tasks, count) = (TaskTracker::new(), Arc::clone(&connections));
    let spawner = tasks.clone();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let started = started.clone();
            let service = service_fn(move |request| respond(request, started.clone()));
            let server = server.clone();
            spawner.spawn(async move {
                // A slow backend: a client that does not wait for it has sent what it wants to send.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                server.serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    Http2Backend {
        address,
        connections,
        endless,
        _tasks: tasks,
    }
}

#[tokio::test]
async fn requests_share_one_http2_connection() {
    let (backend, pool) = (start().await, pool());
    let (one, two) = tokio::join!(
        pool.send(&backend.address, post("/one?x=1", "body")),
        pool.send(&backend.address, get("/two")),
    );
    let url = backend.address.to_string();
    assert_eq!(
        text(one.unwrap()).await.unwrap(),
        format!("{url}/one?x=1 body")
    );
    assert_eq!(text(two.unwrap()).await.unwrap(), format!("{url}/two "));
    assert_eq!(backend.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn dropping_an_http2_body_resets_its_stream_only() {
    let (mut backend, pool) = (start().await, pool());
    let response = soon(pool.send(&backend.address, get("/endless")))
        .await
        .unwrap();
    let mut body = response.into_body();
    let first = soon(body.frame()).await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "one");
    let dropped = soon(backend.endless.recv()).await.unwrap();
    drop(body);
    soon(dropped).await.unwrap();
    let response = soon(pool.send(&backend.address, get("/after")))
        .await
        .unwrap();
    text(response).await.unwrap();
    assert_eq!(backend.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_burst_opens_no_more_streams_than_the_backend_allows() {
    let mut limited = Builder::new(TokioExecutor::new());
    limited.max_concurrent_streams(2);
    let (backend, pool) = (start_with(limited).await, pool());
    let requests = (0..20).map(|_| async {
        let response = pool.send(&backend.address, post("/", "body")).await;
        text(response.unwrap()).await.unwrap()
    });
    let answers = soon(futures_util::future::join_all(requests)).await;
    assert_eq!(answers.len(), 20);
}

#[tokio::test]
async fn a_stream_that_the_backend_refuses_is_opened_again() {
    let backend = Backend::start().await;
    let address = UpstreamAddress {
        version: UpstreamVersion::Http2,
        ..backend.address.clone()
    };
    let server = async {
        let stream = backend.accept().await.stream;
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut targets = Vec::new();
        while let Some(request) = connection.accept().await {
            let (request, mut respond) = request.unwrap();
            targets.push(request.uri().path().to_owned());
            if targets.len() < 3 {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                continue;
            }
            respond.send_response(Response::new(()), true).unwrap();
        }
        targets
    };
    let client = async {
        let pool = pool();
        let response = soon(pool.send(&address, post("/again", "body"))).await;
        assert_eq!(response.unwrap().status(), 200);
    };
    let (targets, ()) = tokio::join!(server, client);
    assert_eq!(targets, ["/again"; 3]);
}
