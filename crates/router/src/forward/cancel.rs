//! Stops the work of a backend after its client has gone.
//!
//! Most backends stop when their connection is closed. Cog and Triton do not: the permit of such an
//! endpoint stays in use until the backend has answered or the grace period is over, and Cog is asked to
//! cancel.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::{join, poll_fn};
use hyper::body::Body;
use hyper::{HeaderMap, Method, Request, Uri};
use tidegate_net::upstream::{
    UpstreamAddress, UpstreamBody, UpstreamError, UpstreamPool, UpstreamRequestBody,
};
use tokio_util::task::TaskTracker;

use super::RequestForwarder;
use super::attempt::FirstBytes;
use crate::backend;
use crate::health::Verdict;
use crate::permits::EndpointPermit;

/// How the work of one request is stopped.
#[derive(Debug, Clone)]
pub(super) struct CancelCall {
    pool: UpstreamPool,
    tasks: TaskTracker,
    address: UpstreamAddress,
    /// `None` if the backend cannot be asked.
    target: Option<(Method, Uri)>,
    /// The credentials of the endpoint.
    headers: HeaderMap,
    grace: Duration,
}

/// How long the end of a response is waited for after its client has gone. A client may leave after the last
/// event and before the end; then there is nothing to stop.
const END_GRACE: Duration = Duration::from_millis(50);

type BoxedExchange = Pin<Box<dyn Future<Output = Result<FirstBytes, UpstreamError>> + Send>>;

impl CancelCall {
    /// `None` for a backend that stops when its connection is closed.
    pub(super) fn of(
        forwarder: &RequestForwarder,
        permit: &EndpointPermit,
        headers: &HeaderMap,
        upstream_id: Option<&str>,
    ) -> Option<Self> {
        let config = permit.config();
        if config.kind.stops_on_disconnect() {
            return None;
        }
        let id = permit.request_id().to_string();
        let id = upstream_id.unwrap_or(&id);
        let target = backend::cancel_call(config.kind, id).and_then(|call| {
            let path = format!("{}{}", permit.url().prefix, call.path);
            Some((call.method, path.parse().ok()?))
        });
        Some(Self {
            pool: forwarder.pool.clone(),
            tasks: forwarder.tasks.clone(),
            address: permit.address().clone(),
            target,
            headers: headers.clone(),
            grace: config.cancel_grace,
        })
    }

    /// The client has gone while the body was read.
    pub(super) fn stop_body(self, mut body: UpstreamBody, permit: EndpointPermit) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let end = tokio::time::timeout(END_GRACE, read_to_end(&mut body)).await;
            if end.is_err() {
                self.spawn(async move { read_to_end(&mut body).await }, permit);
            }
        });
    }

    /// Asks the backend to stop, and gives the permit back when it has answered or the grace period is
    /// over.
    fn spawn(self, answer: impl Future<Output = ()> + Send + 'static, permit: EndpointPermit) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let grace = self.grace;
            let stopped = join(self.send(), answer);
            if tokio::time::timeout(grace, stopped).await.is_err() {
                tracing::warn!(endpoint = %permit.endpoint().key(), ?grace, "backend did not stop in time after its client had gone");
            }
            drop(permit);
        });
    }

    async fn send(self) {
        let Some((method, uri)) = self.target else {
            return;
        };
        let mut request = Request::new(UpstreamRequestBody::Empty);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        if let Err(error) = self.pool.send(&self.address, request).await {
            tracing::debug!(address = %self.address, %error, "failed to cancel a request");
        }
    }
}

/// Reads a body to its end. Cancel-safe.
pub(super) async fn read_to_end(body: &mut UpstreamBody) {
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {}
}

/// An exchange with a backend that does not stop on disconnect. If it is dropped, it goes on in a task.
pub(super) struct DetachableExchange {
    running: Option<(BoxedExchange, EndpointPermit)>,
    cancel: CancelCall,
}

impl DetachableExchange {
    pub(super) fn new(exchange: BoxedExchange, permit: EndpointPermit, cancel: CancelCall) -> Self {
        Self {
            running: Some((exchange, permit)),
            cancel,
        }
    }

    /// Waits for the result. Called once.
    pub(super) async fn result(&mut self) -> Result<FirstBytes, UpstreamError> {
        let (exchange, _) = self.running.as_mut().expect("the exchange has not ended");
        exchange.await
    }

    /// Takes back the permit of an exchange with a result.
    pub(super) fn into_permit(mut self) -> EndpointPermit {
        let (_, permit) = self.running.take().expect("the exchange has its permit");
        permit
    }

    /// Applies the result of the attempt to the endpoint.
    pub(super) fn record(&self, verdict: Verdict) {
        if let Some((_, permit)) = &self.running {
            permit.record(verdict);
        }
    }
}

impl Drop for DetachableExchange {
    fn drop(&mut self) {
        if let Some((exchange, permit)) = self.running.take() {
            let answer = async {
                if let Ok(mut response) = exchange.await {
                    read_to_end(&mut response.rest).await;
                }
            };
            self.cancel.clone().spawn(answer, permit);
        }
    }
}
