//! The HTTP/2 connections to one address. Requests share them; a task drives each.

use std::error::Error as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::poll_fn;
use futures_util::task::AtomicWaker;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::HOST;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::rt::Executor;
use hyper::{Request, Response, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::address::UpstreamScheme;
use super::body::UpstreamBody;
use super::error::UpstreamError;
use super::host::{HostUse, UpstreamHost, replayable};
use super::request_body::UpstreamRequestBody;

/// The most streams on one connection, whatever the backend allows: they share one window.
const MAX_STREAMS: usize = 100;
/// How much of one response may be in memory because it is not read.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Enough for all streams, so that slow readers do not stop the others.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How long a connection with open streams may be silent before the backend gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How long the backend may take for it.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a stream that the backend refuses is opened again. It refuses streams that it has not worked on,
/// for example while it lowers their number.
const MAX_REFUSALS: u32 = 3;
/// The pause before that; doubled each time.
const REFUSAL_PAUSE: Duration = Duration::from_millis(10);

/// The HTTP/2 connections to one address.
pub(super) struct Http2Connections {
    tasks: TaskTracker,
    open: Mutex<Vec<Http2Connection>>,
    /// Held while a connection is opened, so that a burst of requests opens one.
    opening: tokio::sync::Mutex<()>,
}

struct Http2Connection {
    sender: SendRequest<UpstreamRequestBody>,
    streams: Arc<AtomicUsize>,
    /// How many streams the backend allows, which it may change.
    max_streams: watch::Receiver<usize>,
    last_used: Instant,
}

/// A stream in use.
pub(super) struct StreamGuard(Arc<AtomicUsize>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Connection {
    fn stream(&mut self) -> (SendRequest<UpstreamRequestBody>, StreamGuard) {
        self.last_used = Instant::now();
        self.streams.fetch_add(1, Ordering::Relaxed);
        (self.sender.clone(), StreamGuard(Arc::clone(&self.streams)))
    }

    fn has_room(&self) -> bool {
        let limit = (*self.max_streams.borrow()).min(MAX_STREAMS);
        self.streams.load(Ordering::Relaxed) < limit
    }
}

impl Http2Connections {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            open: Mutex::new(Vec::new()),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) async fn send(
        &self,
        host: &Arc<UpstreamHost>,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        set_absolute_uri(host, &mut request)?;
        let (mut refusals, mut was_closing) = (0, false);
        loop {
            let replay = replayable(&request);
            let open = self.open_stream();
            let may_be_closing = open.is_some() && !was_closing;
            let (mut sender, stream) = match open {
                Some(open) => open,
                None => self.fresh_stream(host).await?,
            };
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(respond(host, response, stream)),
                Err(error) => error,
            };
            drop(stream);
            let again = error.take_message().or(replay);
            let error = error.into_error();
            request = match again {
                Some(again) if is_refused(&error) && refusals < MAX_REFUSALS => {
                    tokio::time::sleep(REFUSAL_PAUSE * 2_u32.pow(refusals)).await;
                    refusals += 1;
                    again
                }
                // The connection was closing; the next one is fresh.
                Some(again) if may_be_closing && sender.is_closed() => {
                    was_closing = true;
                    again
                }
                Some(_) | None => {
                    return Err(UpstreamError::before_response(host.address(), error));
                }
            };
        }
    }

    /// A stream of a connection that is open.
    fn open_stream(&self) -> Option<(SendRequest<UpstreamRequestBody>, StreamGuard)> {
        let mut open = self.open();
        open.retain(|connection| !connection.sender.is_closed());
        open.iter_mut()
            .find(|connection| connection.has_room())
            .map(Http2Connection::stream)
    }

    /// A stream of a connection that was opened now, by this request or by another one that waited too.
    async fn fresh_stream(
        &self,
        host: &UpstreamHost,
    ) -> Result<(SendRequest<UpstreamRequestBody>, StreamGuard), UpstreamError> {
        let _opening = self.opening.lock().await;
        if let Some(stream) = self.open_stream() {
            return Ok(stream);
        }
        let io = host.dialer().dial().await?;
        let progress = Arc::new(AtomicWaker::new());
        let executor = TrackedExecutor {
            tasks: self.tasks.clone(),
            progress: Arc::clone(&progress),
        };
        let (sender, mut driver) = Builder::new(executor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // Until the backend has said how many it allows, which is the first that it sends.
            .initial_max_send_streams(0)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| UpstreamError::before_response(host.address(), error))?;
        let (limit, mut max_streams) = watch::channel(0);
        self.tasks.spawn(poll_fn(move |cx| {
            // hyper wakes this task for requests only; the settings come to another one.
            if *limit.borrow() == 0 {
                progress.register(cx.waker());
            }
            let ended = Pin::new(&mut driver).poll(cx);
            let allowed = driver.current_max_send_streams();
            limit.send_if_modified(|limit| std::mem::replace(limit, allowed) != allowed);
            ended.map(|result| {
                if let Err(error) = result {
                    tracing::debug!(%error, "HTTP/2 connection to a backend ended");
                }
            })
        }));
        host.dialer()
            .in_time(max_streams.wait_for(|allowed| *allowed > 0))
            .await?
            .map_err(|_| UpstreamError::ClosedBeforeResponse {
                address: host.address().clone(),
                source: io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            })?;
        let mut connection = Http2Connection {
            sender,
            streams: Arc::default(),
            max_streams,
            last_used: Instant::now(),
        };
        let stream = connection.stream();
        self.open().push(connection);
        Ok(stream)
    }

    /// Closes connections without streams that have not been used for `idle_limit`.
    pub(super) fn sweep(&self, idle_limit: Duration) -> HostUse {
        let mut open = self.open();
        open.retain(|connection| {
            let is_used = connection.streams.load(Ordering::Relaxed) > 0
                || connection.last_used.elapsed() < idle_limit;
            is_used && !connection.sender.is_closed()
        });
        if open.is_empty() {
            HostUse::Unused
        } else {
            HostUse::Connected
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Http2Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the backend has refused a stream without working on it.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.and_then(h2::Error::reason) == Some(h2::Reason::REFUSED_STREAM)
}

fn respond(
    host: &Arc<UpstreamHost>,
    response: Response<hyper::body::Incoming>,
    stream: StreamGuard,
) -> Response<UpstreamBody> {
    response.map(|incoming| UpstreamBody::http2(incoming, Arc::clone(host), stream))
}

/// HTTP/2 sends scheme and authority as parts of the target instead of a `Host` header.
fn set_absolute_uri(
    host: &UpstreamHost,
    request: &mut Request<UpstreamRequestBody>,
) -> Result<(), UpstreamError> {
    *request.version_mut() = Version::HTTP_2;
    let invalid = |error: hyper::http::Error| UpstreamError::RequestBody {
        address: host.address().clone(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error).into(),
    };
    let named = request.headers_mut().remove(HOST);
    let authority = named.as_ref().unwrap_or(host.host_header());
    let authority =
        Authority::try_from(authority.as_bytes()).map_err(|error| invalid(error.into()))?;
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::builder()
        .scheme(match host.address().scheme {
            UpstreamScheme::Http => Scheme::HTTP,
            UpstreamScheme::Https => Scheme::HTTPS,
        })
        .authority(authority)
        .path_and_query(target.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()
        .map_err(invalid)?;
    Ok(())
}

/// Spawns the tasks of hyper on a tracker.
#[derive(Clone)]
struct TrackedExecutor {
    tasks: TaskTracker,
    /// Woken whenever one of the tasks has made progress.
    progress: Arc<AtomicWaker>,
}

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let progress = Arc::clone(&self.progress);
        self.tasks.spawn(async move {
            let mut future = pin!(future);
            poll_fn(|cx| {
                let polled = future.as_mut().poll(cx);
                progress.wake();
                polled
            })
            .await
        });
    }
}
