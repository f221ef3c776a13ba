//! The body of a response, which drives its connection, and the stream after an upgrade.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error::UpstreamError;
use super::host::UpstreamHost;
use super::http1::Http1Connection;
use super::http2::StreamGuard;
use super::io::UpstreamIo;

/// The body of a response.
///
/// When it ends, its connection can serve another request. Dropping it earlier closes the connection, or
/// resets the stream of an HTTP/2 connection.
#[derive(Default)]
pub struct UpstreamBody(BodyState);

#[derive(Default)]
enum BodyState {
    /// Nothing is left to read.
    #[default]
    Ended,
    Http1 {
        incoming: Incoming,
        connection: Box<Http1Connection>,
        host: Arc<UpstreamHost>,
    },
    Http2 {
        incoming: Incoming,
        host: Arc<UpstreamHost>,
        _stream: StreamGuard,
    },
    Upgraded(Box<UpstreamUpgraded>),
}

impl UpstreamBody {
    /// The body of a response of an HTTP/1.1 connection.
    pub(super) fn http1(
        incoming: Incoming,
        connection: Box<Http1Connection>,
        host: Arc<UpstreamHost>,
    ) -> Self {
        let mut body = Self(BodyState::Http1 {
            incoming,
            connection,
            host,
        });
        body.end_if_complete();
        body
    }

    /// The body of a response of an HTTP/2 connection.
    pub(super) fn http2(incoming: Incoming, host: Arc<UpstreamHost>, stream: StreamGuard) -> Self {
        Self(BodyState::Http2 {
            incoming,
            host,
            _stream: stream,
        })
    }

    pub(super) fn upgraded(stream: UpstreamUpgraded) -> Self {
        Self(BodyState::Upgraded(Box::new(stream)))
    }

    /// The raw connection, if the response is 101 Switching Protocols.
    pub fn into_upgraded(self) -> Option<UpstreamUpgraded> {
        match self.0 {
            BodyState::Upgraded(stream) => Some(*stream),
            BodyState::Ended | BodyState::Http1 { .. } | BodyState::Http2 { .. } => None,
        }
    }

    /// Gives the connection back as soon as the last byte has been read: a reader that knows the length
    /// does not ask for more.
    fn end_if_complete(&mut self) {
        if let BodyState::Http1 { incoming, .. } = &self.0
            && incoming.is_end_stream()
        {
            self.end();
        }
    }

    fn end(&mut self) {
        if let BodyState::Http1 {
            connection, host, ..
        } = std::mem::take(&mut self.0)
        {
            host.release(connection);
        }
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let (frame, host) = match &mut self.0 {
            BodyState::Ended | BodyState::Upgraded(_) => return Poll::Ready(None),
            BodyState::Http1 {
                incoming,
                connection,
                host,
            } => {
                let frame = match Pin::new(&mut *incoming).poll_frame(cx) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => {
                        connection.drive(cx);
                        std::task::ready!(Pin::new(incoming).poll_frame(cx))
                    }
                };
                (frame, host)
            }
            BodyState::Http2 { incoming, host, .. } => {
                (std::task::ready!(Pin::new(incoming).poll_frame(cx)), host)
            }
        };
        Poll::Ready(
            frame.map(|frame| frame.map_err(|error| UpstreamError::in_body(host.address(), error))),
        )
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(this.poll_incoming(cx));
        match &frame {
            None => this.end(),
            Some(Ok(_)) => this.end_if_complete(),
            Some(Err(_)) => this.0 = BodyState::Ended,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyState::Ended | BodyState::Upgraded(_) => true,
            BodyState::Http1 { incoming, .. } | BodyState::Http2 { incoming, .. } => {
                incoming.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyState::Ended | BodyState::Upgraded(_) => SizeHint::with_exact(0),
            BodyState::Http1 { incoming, .. } | BodyState::Http2 { incoming, .. } => {
                incoming.size_hint()
            }
        }
    }
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            BodyState::Ended => "UpstreamBody(ended)",
            BodyState::Http1 { .. } => "UpstreamBody(HTTP/1.1)",
            BodyState::Http2 { .. } => "UpstreamBody(HTTP/2)",
            BodyState::Upgraded(_) => "UpstreamBody(upgraded)",
        })
    }
}

/// The raw connection after the response 101 Switching Protocols. Dropping it closes the connection.
#[derive(Debug)]
pub struct UpstreamUpgraded {
    io: UpstreamIo,
    /// What arrived together with the response.
    received: Bytes,
}

impl UpstreamUpgraded {
    pub(super) fn new(io: UpstreamIo, received: Bytes) -> Self {
        Self { io, received }
    }
}

impl AsyncRead for UpstreamUpgraded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.received.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let len = this.received.len().min(buf.remaining());
        buf.put_slice(&this.received[..len]);
        this.received.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamUpgraded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
