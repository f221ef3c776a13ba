//! The connections to one address: those that are idle, and how a request gets one.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::address::{UpstreamAddress, UpstreamVersion};
use super::body::UpstreamBody;
use super::dial::{Dialer, TlsConfigs};
use super::error::UpstreamError;
use super::http1::Http1Connection;
use super::http2::Http2Connections;
use super::idle::IdleConnections;
use super::pool::UpstreamConfig;
use super::request_body::UpstreamRequestBody;

/// A connection that the backend had already closed fails this soon after a request was sent on it. If
/// it fails later, the backend may have worked on the request.
const STALE_WINDOW: Duration = Duration::from_secs(1);

/// The connections to one address.
pub(super) struct UpstreamHost {
    address: UpstreamAddress,
    host_header: HeaderValue,
    dialer: Dialer,
    idle_limit: Duration,
    idle: IdleConnections,
    http2: Http2Connections,
}

impl UpstreamHost {
    pub(super) fn new(
        address: UpstreamAddress,
        config: &UpstreamConfig,
        tls: Arc<TlsConfigs>,
        tasks: TaskTracker,
    ) -> Self {
        // A host with bytes that no header may contain fails when it is resolved.
        let host_header = HeaderValue::from_str(&address.authority())
            .unwrap_or_else(|_| HeaderValue::from_static("invalid"));
        Self {
            dialer: Dialer::new(address.clone(), config, tls),
            host_header,
            address,
            idle_limit: config.idle_limit,
            idle: IdleConnections::new(config.idle_limit, config.max_idle),
            http2: Http2Connections::new(tasks),
        }
    }

    pub(super) fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    pub(super) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        set_framing(&mut request);
        match self.address.version {
            UpstreamVersion::Http1 => self.send_http1(request).await,
            // Requests over HTTP/1.1 do not need its memory.
            UpstreamVersion::Http2 => Box::pin(self.http2.send(self, request)).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        *request.version_mut() = Version::HTTP_11;
        if !request.headers().contains_key(HOST) {
            let host = self.host_header.clone();
            request.headers_mut().insert(HOST, host);
        }
        if may_reuse(&request)
            && let Some(mut connection) = self.idle.take()
        {
            let replay = replayable(&request);
            let sent_at = Instant::now();
            match connection.exchange(&self.address, request).await {
                Ok(response) => return Ok(self.respond(connection, response)),
                Err(error) => match replay {
                    Some(replay) if is_stale(&connection, &error, sent_at) => request = replay,
                    Some(_) | None => return Err(error),
                },
            }
        }
        let mut connection = self.open().await?;
        let response = connection.exchange(&self.address, request).await?;
        Ok(self.respond(connection, response))
    }

    async fn open(&self) -> Result<Box<Http1Connection>, UpstreamError> {
        let io = self.dialer.dial().await?;
        match Http1Connection::open(io).await {
            Ok(connection) => Ok(Box::new(connection)),
            Err(error) => Err(UpstreamError::before_response(&self.address, error)),
        }
    }

    fn respond(
        self: &Arc<Self>,
        connection: Box<Http1Connection>,
        response: Response<Incoming>,
    ) -> Response<UpstreamBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response.map(|_| UpstreamBody::upgraded(connection.into_upgraded()));
        }
        response.map(|incoming| UpstreamBody::http1(incoming, connection, Arc::clone(self)))
    }

    /// Keeps a connection for the next request, or closes it.
    pub(super) fn release(&self, connection: Box<Http1Connection>) {
        self.idle.keep(connection);
    }

    /// Closes the connections that have been idle for too long. Returns whether others are left.
    pub(super) fn sweep(&self) -> HostUse {
        let is_empty = self.idle.sweep();
        if self.http2.sweep(self.idle_limit) == HostUse::Unused && is_empty {
            HostUse::Unused
        } else {
            HostUse::Connected
        }
    }
}

/// Whether connections to an address are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostUse {
    Connected,
    Unused,
}

/// Whether the failure means that the backend had closed the connection before it got the request.
fn is_stale(connection: &Http1Connection, error: &UpstreamError, sent_at: Instant) -> bool {
    matches!(error, UpstreamError::ClosedBeforeResponse { .. })
        && !connection.has_received()
        && sent_at.elapsed() < STALE_WINDOW
}

/// Whether a request may use a connection that the backend may have closed: only if it can be sent again.
/// A request to upgrade reaches a backend once.
fn may_reuse(request: &Request<UpstreamRequestBody>) -> bool {
    !matches!(request.body(), UpstreamRequestBody::Stream(_))
        && !request.headers().contains_key(UPGRADE)
}

/// A copy of the request for a second try, if it can have one.
pub(super) fn replayable(
    request: &Request<UpstreamRequestBody>,
) -> Option<Request<UpstreamRequestBody>> {
    let mut copy = Request::new(request.body().replay()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Makes the headers agree with the body, so that a backend cannot find another end of it.
fn set_framing(request: &mut Request<UpstreamRequestBody>) {
    let length = match request.body() {
        UpstreamRequestBody::Stream(_) => return,
        UpstreamRequestBody::Full(bytes) => Some(bytes.len()),
        UpstreamRequestBody::Empty => {
            // Some servers refuse a POST without a length.
            let usual = [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
            usual.then_some(0)
        }
    };
    let headers = request.headers_mut();
    headers.remove(TRANSFER_ENCODING);
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
}
