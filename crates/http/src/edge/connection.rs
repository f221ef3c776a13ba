//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::drain_body::{BodyDrain, Rest};
use super::exchange::Exchange;
use super::framing_guard::{Guard, Left};
use super::rejection::Rejection;
use super::stream::Stream;
use crate::access::Peer;
use crate::request_metrics::{RequestMetrics, resource_of};

/// A caller that still sends is listened to so long after the last answer. If the socket were closed
/// with bytes in it, the caller would be told of a broken connection, and might never read the answer.
const LINGER: Duration = Duration::from_secs(5);
/// And no longer than this when it is silent.
const LINGER_SILENCE: Duration = Duration::from_secs(1);

/// What all connections share.
pub(super) struct ConnectionContext {
    pub(super) faces: Router,
    pub(super) header_timeout: Duration,
    /// Requests that are open now are the last.
    pub(super) stop: CancellationToken,
    /// Comes after `stop`, and ends everything.
    pub(super) goodbye: CancellationToken,
    pub(super) request_metrics: Arc<RequestMetrics>,
}

impl ConnectionContext {
    /// What may be cut short by the goodbye. Requests on their way are not watched for it: each watch is
    /// paid for whenever something happens on a connection.
    async fn last_word(&self, said: impl Future<Output = ()>) {
        self.goodbye.run_until_cancelled(said).await;
    }

    /// Says why nothing is read from a connection, or nothing more.
    pub(super) async fn refuse(&self, stream: Stream, rejection: Rejection) {
        self.request_metrics.count_rejection(rejection.reason());
        self.last_word(refuse(stream, rejection)).await;
    }
}

/// Serves one connection until it ends, or the open request has been answered after `stop`.
pub(super) async fn serve(
    stream: Stream,
    peer: SocketAddr,
    http: &http1::Builder,
    manner: &ConnectionContext,
) {
    let exchange = Arc::new(Exchange::default());
    let guard = Guard::new(stream, Arc::clone(&exchange));
    let service = service_fn(|mut request: Request<Incoming>| {
        let answering = exchange.answer();
        request.extensions_mut().insert(Peer(peer));
        let place = resource_of(request.uri().path());
        let unread = BodyDrain::of(&request);
        let answer = manner
            .faces
            .clone()
            .call(request.map(|body| unread.lend(body)));
        async move {
            let mut response: Response<Body> = answer.await?;
            manner.request_metrics.count_response(place, &response);
            if unread.read().await == Rest::Left {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| answering.with(body)))
        }
    });
    let mut connection = http.serve_connection(TokioIo::new(guard), service);
    let ended = match manner.stop.run_until_cancelled(&mut connection).await {
        Some(ended) => ended,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            match manner.goodbye.run_until_cancelled(&mut connection).await {
                Some(ended) => ended,
                None => return,
            }
        }
    };
    let (stream, left) = connection.into_parts().io.into_inner().into_parts();
    let too_slow = ended.as_ref().is_err_and(hyper::Error::is_timeout);
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
    match left {
        Left::Gone => {}
        Left::Refused(rejection) => manner.refuse(stream, rejection).await,
        Left::MidHead if too_slow => {
            manner
                .refuse(stream, Rejection::TooSlow(manner.header_timeout))
                .await
        }
        Left::MidHead | Left::MidRequest => manner.last_word(part(stream)).await,
        Left::Clean => manner.last_word(close(stream)).await,
    }
}

/// Says why nothing more is read here.
async fn refuse(mut stream: Stream, rejection: Rejection) {
    tracing::debug!(%rejection, "request refused");
    if let Ok(Ok(())) = timeout(LINGER, stream.write_all(&rejection.answer())).await {
        part(stream).await;
    }
}

/// Closes our side, and gives the caller time to read what was said before it finds the other closed.
async fn part(mut stream: Stream) {
    let listen = async {
        stream.shutdown().await?;
        let mut ignored = vec![0; 16 * 1024];
        while let Ok(1..) = timeout(LINGER_SILENCE, stream.read(&mut ignored))
            .await
            .unwrap_or(Ok(0))
        {}
        Ok::<_, std::io::Error>(())
    };
    // Whether the caller has taken leave too changes nothing.
    timeout(LINGER, listen).await.ok();
}

/// Closes a connection on which nothing is left to say.
async fn close(mut stream: Stream) {
    timeout(LINGER_SILENCE, stream.shutdown()).await.ok();
}
