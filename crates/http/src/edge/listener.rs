//! The listener: accepts connections while the connection limit and the file descriptors allow it.
//!
//! Built on hyper because it needs what `axum::serve` does not offer: no delay for small packets,
//! limits for request heads and for connections, and a bounded shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connection::{self, ConnectionContext};
use super::control::EdgeControl;
use super::event_loops::EventLoops;
use super::fd_limit::FdHeadroom;
use super::keepalive;
use super::service::EdgeService;
use super::stream::Stream;
use super::tls::{Tls, TlsAcceptError};
use super::unix_socket::UnixSocket;
use crate::access::{OriginPolicy, Peer};
use crate::request_metrics::{RejectReason, RequestMetrics};

/// How long to wait before checking again for free file descriptors, or accepting again after an
/// error.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two warnings about connections that are not accepted.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// How the edge treats connections.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// How many connections may be open at once; further ones wait to be accepted.
    pub max_connections: usize,
    /// How long the head of a request may take. Also how long an idle connection is kept open.
    pub header_timeout: Duration,
    /// The flag that sets it, for error messages; `None` if there is no such flag.
    pub header_timeout_flag: Option<&'static str>,
    /// With this, the port accepts TLS only.
    pub tls: Option<Arc<Tls>>,
    /// The hosts and origins of accepted requests; `None` accepts all.
    pub origin_policy: Option<OriginPolicy>,
    /// Counts responses and rejections.
    pub request_metrics: Arc<RequestMetrics>,
    /// The threads that serve connections; `None` for the runtime of the caller.
    pub event_loops: Option<Arc<EventLoops>>,
}

/// Where the edge accepts connections.
#[derive(Debug)]
pub struct EdgeListeners {
    /// The port.
    pub tcp: TcpListener,
    /// A Unix socket besides the port. It never uses TLS.
    pub unix: Option<UnixSocket>,
}

impl From<TcpListener> for EdgeListeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, unix: None }
    }
}

impl EdgeListeners {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let tcp = async {
            let (stream, peer) = self.tcp.accept().await?;
            Ok((Stream::Plain(stream), Peer::Tcp(peer)))
        };
        let Some(unix) = &self.unix else {
            return tcp.await;
        };
        tokio::select! {
            accepted = tcp => accepted,
            accepted = unix.listener.accept() => {
                accepted.map(|(stream, _)| (Stream::Unix(stream), Peer::Unix))
            }
        }
    }
}

/// Serves until [`EdgeControl::stop`]; then accepts no more connections, and returns when every open
/// request has been answered and every WebSocket has ended, or after [`EdgeControl::abort`].
pub async fn serve<S: EdgeService>(
    listeners: impl Into<EdgeListeners>,
    service: S,
    config: EdgeConfig,
    control: EdgeControl,
) {
    let listeners = listeners.into();
    if let Err(error) = keepalive::enable(&listeners.tcp) {
        tracing::warn!(%error, "failed to enable TCP keepalive");
    }
    let acceptor = Acceptor::new(&config, service, control.clone());
    control
        .stop
        .run_until_cancelled(acceptor.accept_connections(&listeners))
        .await;
    drop(listeners);
    acceptor.tasks.close();
    acceptor.tasks.wait().await;
}

/// Accepts connections and spawns one task for each.
struct Acceptor<S> {
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    event_loops: Option<Arc<EventLoops>>,
    handler: Arc<ConnectionHandler<S>>,
}

/// What the task of a connection needs; shared by all of them.
struct ConnectionHandler<S> {
    context: ConnectionContext<S>,
    tls: Option<Arc<Tls>>,
    http: http1::Builder,
    /// For connections that are closed after one request.
    http_once: http1::Builder,
}

impl<S: EdgeService> Acceptor<S> {
    fn new(config: &EdgeConfig, service: S, control: EdgeControl) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout);
        let mut http_once = http.clone();
        http_once.keep_alive(false);
        let context = ConnectionContext {
            service,
            header_timeout: config.header_timeout,
            header_timeout_flag: config.header_timeout_flag,
            control,
            origin_policy: config.origin_policy.clone(),
            request_metrics: Arc::clone(&config.request_metrics),
        };
        let handler = Arc::new(ConnectionHandler {
            context,
            tls: config.tls.clone(),
            http,
            http_once,
        });
        let permits = Arc::new(Semaphore::new(
            config.max_connections.min(Semaphore::MAX_PERMITS),
        ));
        Self {
            permits,
            tasks: TaskTracker::new(),
            event_loops: config.event_loops.clone(),
            handler,
        }
    }

    /// Accepts connections forever.
    async fn accept_connections(&self, listeners: &EdgeListeners) {
        let request_metrics = &self.handler.context.request_metrics;
        let mut warnings = RateLimitedLog::default();
        loop {
            let permit = match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    request_metrics.connections_full.inc();
                    warnings
                        .log(|| tracing::warn!("--max-connections reached, new connections wait"));
                    self.permit().await
                }
            };
            match listeners.accept().await {
                Ok((stream, peer)) => {
                    let headroom = FdHeadroom::above(&stream);
                    let task = self.spawn(stream, peer, headroom, permit);
                    if headroom == FdHeadroom::Reserved {
                        request_metrics.connections_full.inc();
                        warnings.log(|| tracing::warn!("nearly out of file descriptors, new connections wait; raise the limit (`ulimit -n`)"));
                        wait_for_descriptors(&listeners.tcp, task).await;
                    }
                }
                Err(error) if is_peer_error(&error) => {}
                Err(error) => {
                    warnings.log(|| tracing::warn!(%error, "failed to accept connections"));
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    fn spawn(
        &self,
        stream: Stream,
        peer: Peer,
        headroom: FdHeadroom,
        permit: OwnedSemaphorePermit,
    ) -> JoinHandle<()> {
        let handler = Arc::clone(&self.handler);
        let Some(event_loops) = &self.event_loops else {
            return self.tasks.spawn(async move {
                handler.handle(stream, peer, headroom).await;
                drop(permit);
            });
        };
        let (event_loop, place) = event_loops.place();
        let serving = async move {
            match stream.move_to_this_runtime() {
                Ok(stream) => handler.handle(stream, peer, headroom).await,
                Err(error) => tracing::warn!(%error, "failed to pass a connection to its thread"),
            }
            drop((permit, place));
        };
        self.tasks.spawn_on(serving, event_loop)
    }
}

/// Waits until descriptors are free again, or until the last accepted connection has ended. So one
/// connection at a time is served however low the limit is; it is closed after its response.
async fn wait_for_descriptors(listener: &TcpListener, last: JoinHandle<()>) {
    let descriptors = async {
        while FdHeadroom::now(listener) == FdHeadroom::Reserved {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    tokio::select! {
        () = descriptors => {}
        _ = last => {}
    }
}

impl<S: EdgeService> ConnectionHandler<S> {
    async fn handle(&self, stream: Stream, peer: Peer, headroom: FdHeadroom) {
        let accepted = match (stream, &self.tls) {
            (Stream::Plain(stream), Some(tls)) => {
                let handshake = tls.accept(stream);
                match self
                    .context
                    .control
                    .stop
                    .run_until_cancelled(handshake)
                    .await
                {
                    Some(accepted) => accepted,
                    None => return,
                }
            }
            (stream, _) => Ok(stream),
        };
        let http = if headroom == FdHeadroom::Ample {
            &self.http
        } else {
            &self.http_once
        };
        match accepted {
            Ok(stream) => connection::serve(stream, peer, http, &self.context).await,
            Err(TlsAcceptError::PlainHttp(stream, rejection)) => {
                self.context.reject(stream, rejection).await
            }
            Err(TlsAcceptError::Failed(error)) => {
                let metrics = &self.context.request_metrics;
                metrics.count_rejection(RejectReason::TlsFailed);
                tracing::debug!(%error, %peer, "TLS handshake failed");
            }
        }
    }
}

/// Whether the error concerns only the connection that was about to be accepted.
fn is_peer_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Logs at most once per [`WARN_INTERVAL`].
#[derive(Default)]
struct RateLimitedLog {
    last: Option<Instant>,
}

impl RateLimitedLog {
    fn log(&mut self, emit: impl FnOnce()) {
        if self.last.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            self.last = Some(Instant::now());
            emit();
        }
    }
}
