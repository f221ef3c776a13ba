//! One client connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use futures_util::future::{Either, ready};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::drain_body::{BodyDrain, DrainResult};
use super::exchange::Exchange;
use super::framing_guard::{ConnectionEnd, FramingGuard};
use super::rejection::Rejection;
use super::stream::Stream;
use crate::access::{OriginPolicy, Peer};
use crate::request_metrics::{RequestMetrics, resource_of};

/// How long the server keeps reading from a client that still sends after the last response. If the
/// socket were closed with unread bytes in it, the client would see a connection reset and might
/// never read the response.
const LINGER: Duration = Duration::from_secs(5);
/// How long the server keeps reading while the client sends nothing.
const LINGER_SILENCE: Duration = Duration::from_secs(1);

/// State shared by all connections.
pub(super) struct ConnectionContext {
    pub(super) router: Router,
    pub(super) header_timeout: Duration,
    /// The flag that sets it, if there is one.
    pub(super) header_timeout_flag: Option<&'static str>,
    /// Graceful shutdown: open requests are answered, no further ones are read.
    pub(super) stop: CancellationToken,
    /// Comes after `stop` and ends every connection at once.
    pub(super) abort: CancellationToken,
    /// The hosts and origins of accepted requests; `None` accepts all.
    pub(super) origin_policy: Option<OriginPolicy>,
    pub(super) request_metrics: Arc<RequestMetrics>,
}

impl ConnectionContext {
    /// Runs `future` until it ends or `abort` is canceled. Requests in progress do not wait for
    /// `abort` this way: each wait would cost something on every event of the connection.
    async fn until_abort(&self, future: impl Future<Output = ()>) {
        self.abort.run_until_cancelled(future).await;
    }

    /// The response to a request with a host or an origin that is not accepted.
    fn refuse(&self, request: &Request<Incoming>, peer: SocketAddr) -> Option<Response<Body>> {
        let policy = self.origin_policy.as_ref()?;
        let refusal = policy
            .check(request.method(), request.uri(), request.headers())
            .err()?;
        tracing::warn!(status = 403, reason = %refusal, %peer, "refused");
        Some(refusal.response(request.uri().path()))
    }

    /// Answers with the reason why no more requests are read from this connection, and closes it.
    pub(super) async fn reject(&self, stream: Stream, rejection: Rejection) {
        self.request_metrics.count_rejection(rejection.reason());
        self.until_abort(reject(stream, rejection)).await;
    }
}

/// Serves one connection until it ends or, after `stop`, until the open request is answered.
pub(super) async fn serve(
    stream: Stream,
    peer: SocketAddr,
    http: &http1::Builder,
    context: &ConnectionContext,
) {
    let exchange = Arc::new(Exchange::default());
    let guard = FramingGuard::new(stream, Arc::clone(&exchange));
    let service = service_fn(|mut request: Request<Incoming>| {
        let pending = exchange.begin_response();
        request.extensions_mut().insert(Peer(peer));
        let resource = resource_of(request.uri().path());
        let drain = BodyDrain::of(&request);
        let refused = context.refuse(&request, peer);
        let request = request.map(|body| drain.lend(body));
        let response = match refused {
            None => Either::Left(context.router.clone().call(request)),
            Some(response) => {
                // Gives the body back, which is read before the response is written.
                drop(request);
                Either::Right(ready(Ok(response)))
            }
        };
        async move {
            let mut response: Response<Body> = response.await?;
            context.request_metrics.count_response(resource, &response);
            if drain.drain().await == DrainResult::Remaining {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| pending.track(body)))
        }
    });
    let mut connection = http.serve_connection(TokioIo::new(guard), service);
    let result = match context.stop.run_until_cancelled(&mut connection).await {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            match context.abort.run_until_cancelled(&mut connection).await {
                Some(result) => result,
                None => return,
            }
        }
    };
    let (stream, end) = connection.into_parts().io.into_inner().into_parts();
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
