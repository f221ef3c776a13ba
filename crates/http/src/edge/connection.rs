//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::control::EdgeControl;
use super::drain_body::{BodyDrain, DrainResult};
use super::exchange::{Exchange, PendingResponse, TrackedBody};
use super::framing_guard::{ConnectionEnd, FramingGuard};
use super::rejection::Rejection;
use super::request_span::{RequestSpan, in_span};
use super::service::EdgeService;
use super::stream::Stream;
use super::websocket;
use crate::access::{OriginPolicy, Peer};
use crate::request_metrics::{RequestMetrics, resource_of};

/// How long the server keeps reading from a client that still sends after the last response. If the
/// socket were closed with unread bytes in it, the client would see a connection reset and might
/// never read the response.
const LINGER: Duration = Duration::from_secs(5);
/// How long the server keeps reading while the client sends nothing.
const LINGER_SILENCE: Duration = Duration::from_secs(1);

/// State shared by all connections.
pub(super) struct ConnectionContext<S> {
    pub(super) service: S,
    pub(super) header_timeout: Duration,
    /// The flag that sets it, if there is one.
    pub(super) header_timeout_flag: Option<&'static str>,
    pub(super) control: EdgeControl,
    /// The hosts and origins of accepted requests; `None` accepts all.
    pub(super) origin_policy: Option<OriginPolicy>,
    pub(super) request_metrics: Arc<RequestMetrics>,
}

impl<S: EdgeService> ConnectionContext<S> {
    /// Runs `future` until it ends or `abort` is canceled. Requests in progress do not wait for
    /// `abort` this way: each wait would cost something on every event of the connection.
    async fn until_abort(&self, future: impl Future<Output = ()>) {
        self.control.abort.run_until_cancelled(future).await;
    }

    /// Answers one request. The connection is closed after the response if part of the request's
    /// body remains unread.
    async fn respond(
        &self,
        mut request: Request<Incoming>,
        peer: Peer,
        pending: PendingResponse,
        upgrade: &UnusedUpgrade,
    ) -> Result<Response<TrackedBody<Body>>, Infallible> {
        request.extensions_mut().insert(peer);
        let offer = upgrade.offer(&mut request);
        let resource = resource_of(request.uri().path());
        let mut span = RequestSpan::start(&request, resource);
        let drain = BodyDrain::of(&request);
        let refused = self.refuse(&request, peer, offer);
        let request = request.map(|body| drain.lend(body));
        let mut response = match refused {
            None => in_span(&mut span, pin!(self.service.call(request))).await,
            Some(response) => {
                // Gives the body back, which is read before the response is written.
                drop(request);
                response
            }
        };
        self.request_metrics.count_response(resource, &response);
        if offer == UpgradeOffer::WebSocket && response.status() == StatusCode::SWITCHING_PROTOCOLS
        {
            upgrade.use_up();
            pending.upgrade();
        } else if drain.drain().await == DrainResult::Remaining || self.control.is_draining() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| pending.track(body, span)))
    }

    /// The response to a request with a host or an origin that is not accepted.
    fn refuse(
        &self,
        request: &Request<Incoming>,
        peer: Peer,
        offer: UpgradeOffer,
    ) -> Option<Response<Body>> {
        // Web pages cannot reach a Unix socket.
        let policy = self.origin_policy.as_ref().filter(|_| peer != Peer::Unix)?;
        let method = match offer {
            // Browsers let every page open a WebSocket and read from it.
            UpgradeOffer::WebSocket => &Method::POST,
            UpgradeOffer::None => request.method(),
        };
        let refusal = policy
            .check(method, request.uri(), request.headers())
            .err()?;
        tracing::warn!(status = 403, reason = %refusal, %peer, "refused");
        Some(refusal.response(request.uri().path()))
    }

    /// Waits until the service drops the upgraded connection, or ends it after `abort`. Meanwhile
    /// the connection counts as open.
    async fn finish_upgraded(&self, exchange: &Exchange) {
        let closed = self.control.abort.run_until_cancelled(exchange.closed());
        if closed.await.is_none() {
            exchange.abort_upgraded();
        }
    }

    /// Answers with the reason why no more requests are read from this connection, and closes it.
    pub(super) async fn reject(&self, stream: Stream, rejection: Rejection) {
        self.request_metrics.count_rejection(rejection.reason());
        self.until_abort(reject(stream, rejection)).await;
    }
}

/// What a request may turn its connection into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpgradeOffer {
    WebSocket,
    None,
}

/// An upgrade that a request asks for and that no response has accepted. hyper gives the socket of a
/// connection that ends to the last such upgrade, so it is held here to close the socket properly.
#[derive(Default)]
struct UnusedUpgrade(Mutex<Option<OnUpgrade>>);

impl UnusedUpgrade {
    /// Leaves the upgrade to the service if it is a WebSocket's.
    fn offer(&self, request: &mut Request<Incoming>) -> UpgradeOffer {
        let Some(upgrade) = request.extensions().get::<OnUpgrade>() else {
            return UpgradeOffer::None;
        };
        *self.slot() = Some(upgrade.clone());
        if websocket::is_handshake(request) {
            return UpgradeOffer::WebSocket;
        }
        request.extensions_mut().remove::<OnUpgrade>();
        UpgradeOffer::None
    }

    /// The service has accepted the upgrade.
    fn use_up(&self) {
        *self.slot() = None;
    }

    /// The socket of a connection that has ended.
    async fn take_back(&self) -> Option<FramingGuard<Stream>> {
        let upgrade = self.slot().take()?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<FramingGuard<Stream>>>().ok()?;
        Some(parts.io.into_inner())
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<OnUpgrade>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one connection until it ends or, after `stop`, until the open request is answered.
pub(super) async fn serve<S: EdgeService>(
    stream: Stream,
    peer: Peer,
    http: &http1::Builder,
    context: &ConnectionContext<S>,
) {
    let exchange = Arc::new(Exchange::default());
    let guard = FramingGuard::new(stream, Arc::clone(&exchange));
    let upgrade = UnusedUpgrade::default();
    let service =
        service_fn(|request| context.respond(request, peer, exchange.begin_response(), &upgrade));
    let mut connection = http
        .serve_connection(TokioIo::new(guard), service)
        .with_upgrades();
    let result = match context
        .control
        .stop
        .run_until_cancelled(&mut connection)
        .await
    {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            match context
                .control
                .abort
                .run_until_cancelled(&mut connection)
                .await
            {
                Some(result) => result,
                None => return,
            }
        }
    };
    let guard = match connection.into_parts() {
        Some(parts) => parts.io.into_inner(),
        None if exchange.is_upgraded() => return context.finish_upgraded(&exchange).await,
        None => match upgrade.take_back().await {
            Some(guard) => guard,
            None => return,
        },
    };
    let (stream, end) = guard.into_parts();
    let timed_out = result.as_ref().is_err_and(hyper::Error::is_timeout);
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
    match end {
        ConnectionEnd::PeerClosed => {}
        ConnectionEnd::Rejected(rejection) => context.reject(stream, rejection).await,
        ConnectionEnd::MidHead if timed_out => {
            context
                .reject(
                    stream,
                    Rejection::HeadTimeout {
                        limit: context.header_timeout,
                        flag: context.header_timeout_flag,
                    },
                )
                .await
        }
        ConnectionEnd::MidHead | ConnectionEnd::MidRequest => {
            context.until_abort(lingering_close(stream)).await
        }
        ConnectionEnd::Idle => context.until_abort(close(stream)).await,
    }
}

/// Writes the rejection and closes the connection.
async fn reject(mut stream: Stream, rejection: Rejection) {
    tracing::debug!(%rejection, "request rejected");
    if let Ok(Ok(())) = timeout(LINGER, stream.write_all(&rejection.response())).await {
        lingering_close(stream).await;
    }
}

/// Closes the sending side, then discards what the client still sends, so that the client can read
/// the response before the socket is closed.
async fn lingering_close(mut stream: Stream) {
    let discard = async {
        stream.shutdown().await?;
        let mut discarded = vec![0; 16 * 1024];
        while let Ok(1..) = timeout(LINGER_SILENCE, stream.read(&mut discarded))
            .await
            .unwrap_or(Ok(0))
        {}
        Ok::<_, std::io::Error>(())
    };
    // The result does not matter: the socket is closed either way.
    timeout(LINGER, discard).await.ok();
}

/// Closes a connection without an unfinished request.
async fn close(mut stream: Stream) {
    timeout(LINGER_SILENCE, stream.shutdown()).await.ok();
}
