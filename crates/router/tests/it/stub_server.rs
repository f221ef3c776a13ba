//! A small HTTP server whose answers a test decides.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct StubRequest {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

pub(crate) type StubResponse = Response<Full<Bytes>>;
type Handler = dyn Fn(StubRequest) -> BoxFuture<'static, StubResponse> + Send + Sync;

/// A server on a port of 127.0.0.1; it ends when it is dropped.
pub(crate) struct StubServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    _stop: DropGuard,
}

impl StubServer {
    /// A server that answers at once.
    pub(crate) async fn start(
        answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        Self::start_async(move |request| {
            let response = answer(&request);
            Box::pin(async move { response })
        })
        .await
    }

    pub(crate) async fn start_async(
        handler: impl Fn(StubRequest) -> BoxFuture<'static, StubResponse> + Send + Sync + 'static,
    ) -> Self {
        Self::bind("127.0.0.1:0", handler).await
    }

    /// A server at an address.
    pub(crate) async fn bind(
        address: &str,
        handler: impl Fn(StubRequest) -> BoxFuture<'static, StubResponse> + Send + Sync + 'static,
    ) -> Self {
        let listener = bind_soon(address).await;
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let requests = Arc::default();
        let accepting = accept(
            listener,
            Arc::new(handler),
            Arc::clone(&requests),
            stop.clone(),
        );
        TaskTracker::new().spawn(stop.clone().run_until_cancelled_owned(accepting));
        Self {
            address,
            requests,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<StubRequest> {
        self.requests.lock().expect("not poisoned").clone()
    }

    /// The paths of all requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|r| r.path).collect()
    }
}

/// A port that was in use a moment ago may still be closing.
async fn bind_soon(address: &str) -> TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} stays in use");
}

async fn accept(
    listener: TcpListener,
    handler: Arc<Handler>,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    stop: CancellationToken,
) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (handler, requests) = (handler.clone(), requests.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, requests) = (handler.clone(), requests.clone());
            async move {
                let (head, body) = request.into_parts();
                body.collect().await.expect("a body");
                let request = StubRequest {
                    method: head.method,
                    path: head.uri.to_string(),
                    headers: head.headers,
                };
                requests.lock().expect("not poisoned").push(request.clone());
                Ok::<_, Infallible>(handler(request).await)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        // A connection that is cut is the end of a test.
        TaskTracker::new().spawn(stop.clone().run_until_cancelled_owned(async {
            connection.await.ok();
        }));
    }
}

/// A response with a body.
pub(crate) fn reply(status: u16, body: &str) -> StubResponse {
    Response::builder()
        .status(status)
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a response")
}
