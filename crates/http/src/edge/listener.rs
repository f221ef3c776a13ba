//! The listener: accepts connections as long as there is room for them.
//!
//! Written on hyper because it needs what `axum::serve` does not offer: no delay for small packets,
//! limits for heads and for connections, and a bounded goodbye.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, ConnectionContext};
use super::fd_limit::FdHeadroom;
use super::keepalive;
use super::stream::Stream;
use super::tls::{Tls, TlsAcceptError};
use crate::request_metrics::{RejectReason, RequestMetrics};

/// How long to wait before looking again whether there is room.
const PAUSE: Duration = Duration::from_millis(50);
/// How often to say that there is none.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// How connections are treated.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// So many at once; others wait to be accepted.
    pub max_connections: usize,
    /// The head of a request must have come in this time. Also the longest that a connection is kept
    /// open between two requests.
    pub header_timeout: Duration,
    /// With this, connections are opened with TLS.
    pub tls: Option<Arc<Tls>>,
    /// Counts what is answered.
    pub request_metrics: Arc<RequestMetrics>,
}

/// Serves until `stop`; then accepts no more, and returns when every open request has been answered
/// or `goodbye` is over.
pub async fn serve(
    listener: TcpListener,
    faces: Router,
    edge: EdgeConfig,
    stop: CancellationToken,
    goodbye: CancellationToken,
) {
    if let Err(error) = keepalive::enable(&listener) {
        tracing::warn!(%error, "cannot ask the system to notice callers that vanish");
    }
    let door = Acceptor::new(&edge, faces, stop.clone(), goodbye);
    stop.run_until_cancelled(door.stand_open(&listener)).await;
    drop(listener);
    door.tasks.close();
    door.tasks.wait().await;
}

/// Where connections come in.
struct Acceptor {
    seats: Arc<Semaphore>,
    tasks: TaskTracker,
    guest: Arc<ConnectionHandler>,
}

/// What every connection needs.
struct ConnectionHandler {
    manner: ConnectionContext,
    tls: Option<Arc<Tls>>,
    http: http1::Builder,
    /// For connections that are not kept open between requests.
    http_once: http1::Builder,
}

impl Acceptor {
    fn new(
        edge: &EdgeConfig,
        faces: Router,
        stop: CancellationToken,
        goodbye: CancellationToken,
    ) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(edge.header_timeout);
        let mut http_once = http.clone();
        http_once.keep_alive(false);
        let request_metrics = Arc::clone(&edge.request_metrics);
        let manner = ConnectionContext {
            faces,
            header_timeout: edge.header_timeout,
            stop,
            goodbye,
            request_metrics,
        };
        let guest = Arc::new(ConnectionHandler {
            manner,
            tls: edge.tls.clone(),
            http,
            http_once,
        });
        let seats = Arc::new(Semaphore::new(
            edge.max_connections.min(Semaphore::MAX_PERMITS),
        ));
        Self {
            seats,
            tasks: TaskTracker::new(),
            guest,
        }
    }

    /// Lets connections in, for ever.
    async fn stand_open(&self, listener: &TcpListener) {
        let mut health_error = RateLimitedLog::default();
        loop {
            let seat = match Arc::clone(&self.seats).try_acquire_owned() {
                Ok(seat) => seat,
                Err(_) => {
                    self.guest.manner.request_metrics.connections_full.inc();
                    health_error.say(|| {
                        tracing::warn!(
                            "as many connections as --max-connections allows: others wait"
                        )
                    });
                    self.seat().await
                }
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let room = FdHeadroom::above(&stream);
                    let over = self.let_in(stream, peer, room, seat);
                    if room == FdHeadroom::Reserved {
                        self.guest.manner.request_metrics.connections_full.inc();
                        health_error.say(|| tracing::warn!("nearly out of file descriptors: connections wait; raise the limit (`ulimit -n`)"));
                        wait_for_room(listener, over).await;
                    }
                }
                Err(error) if is_of_one_caller(&error) => {}
                Err(error) => {
                    health_error.say(|| tracing::warn!(%error, "cannot accept connections"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn seat(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.seats)
            .acquire_owned()
            .await
            .expect("nobody closes the semaphore")
    }

    fn let_in(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        room: FdHeadroom,
        seat: OwnedSemaphorePermit,
    ) -> JoinHandle<()> {
        let guest = Arc::clone(&self.guest);
        self.tasks.spawn(async move {
            guest.welcome(stream, peer, room).await;
            drop(seat);
        })
    }
}

/// Waits until there is room again, or at least as much as before the last connection came in. So one
/// at a time is served however low the limit is; it is closed after its answer.
async fn wait_for_room(listener: &TcpListener, last: JoinHandle<()>) {
    let room = async {
        while FdHeadroom::now(listener) == FdHeadroom::Reserved {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = room => {}
        _ = last => {}
    }
}

impl ConnectionHandler {
    async fn welcome(&self, stream: TcpStream, peer: SocketAddr, room: FdHeadroom) {
        let opened = match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some(tls) => match self
                .manner
                .stop
                .run_until_cancelled(tls.accept(stream))
                .await
            {
                Some(opened) => opened,
                None => return,
            },
        };
        let http = if room == FdHeadroom::Ample {
            &self.http
        } else {
            &self.http_once
        };
        match opened {
            Ok(stream) => connection::serve(stream, peer, http, &self.manner).await,
            Err(TlsAcceptError::PlainHttp(stream, rejection)) => {
                self.manner.refuse(stream, rejection).await
            }
            Err(TlsAcceptError::Failed(error)) => {
                self.manner
                    .request_metrics
                    .count_rejection(RejectReason::NoTls);
                tracing::debug!(%error, %peer, "no TLS could be opened");
            }
        }
    }
}

/// An error of the connection that was to be accepted, not of us.
fn is_of_one_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Something that is worth saying now and then, not each time.
#[derive(Default)]
struct RateLimitedLog {
    last: Option<Instant>,
}

impl RateLimitedLog {
    fn say(&mut self, what: impl FnOnce()) {
        if self
            .last
            .is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY)
        {
            self.last = Some(Instant::now());
            what();
        }
    }
}
