//! Sits between the socket and hyper and passes on only requests whose framing is unambiguous.
//!
//! A head that arrives in one piece is read into hyper's buffer and checked there; only a head that
//! arrives in pieces is buffered here and copied. After a rejected head nothing is passed on. The
//! responses that are owed are still written, then hyper gets an error, and the connection's task
//! writes the rejection.
//!
//! After an upgrade to a WebSocket all bytes pass unchecked, in both directions.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::close_watch::CloseWatch;
use super::exchange::{Exchange, Flushed, SocketExchange};
use super::framing::{Framing, FramingStatus};
use super::rejection::Rejection;

/// How much is read at once while a head is incomplete.
const READ_SIZE: usize = 4096;
/// How much is discarded after a rejected head while responses are owed. More stays in the socket.
const MAX_DISCARDED: usize = 64 * 1024;

/// A socket whose incoming bytes are checked.
pub(super) struct FramingGuard<S> {
    io: S,
    framing: Framing,
    /// Bytes that were read and not yet passed to hyper.
    buffered: BytesMut,
    /// How many of the buffered bytes may be passed to hyper.
    ready: usize,
    state: GuardState,
    exchange: SocketExchange,
    /// The reader that waits until the owed responses are written.
    reader: Option<Waker>,
    read_wait: ReadWait,
    close_watch: CloseWatch,
}

/// Whether hyper notices by itself that the client closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadWait {
    /// hyper has just read all bytes of the socket and waits for more.
    Waiting,
    /// hyper was polled since. If it has not read before the next flush, it has stopped reading.
    Unknown,
    /// hyper has bytes that it cannot pass on, and does not read.
    Paused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardState {
    /// All bytes so far were valid.
    Reading,
    /// A head is rejected; this many bytes after it have been discarded. Responses may be owed.
    Rejecting {
        rejection: Rejection,
        discarded: usize,
    },
    /// hyper has got an error instead of the rejected head.
    Rejected(Rejection),
    /// A body is malformed.
    Malformed,
    /// The client has closed the connection.
    PeerClosed,
}

/// The state of a connection when hyper is done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// Between two requests.
    Idle,
    /// Part of a head has arrived.
    MidHead,
    /// Part of a request has arrived that is not read to its end.
    MidRequest,
    /// A head was rejected.
    Rejected(Rejection),
    /// The client closed the connection.
    PeerClosed,
}

impl<S> FramingGuard<S> {
    pub(super) fn new(io: S, exchange: Arc<Exchange>) -> Self {
        Self {
            io,
            framing: Framing::new(),
            buffered: BytesMut::new(),
            ready: 0,
            state: GuardState::Reading,
            exchange: SocketExchange(exchange),
            reader: None,
            read_wait: ReadWait::Waiting,
            close_watch: CloseWatch::default(),
        }
    }

    /// The socket and the state that it is in.
    pub(super) fn into_parts(self) -> (S, ConnectionEnd) {
        let idle = !self.framing.is_mid_request() && self.buffered.is_empty();
        let end = match self.state {
            GuardState::Rejected(rejection) => ConnectionEnd::Rejected(rejection),
            GuardState::PeerClosed => ConnectionEnd::PeerClosed,
            GuardState::Reading if self.framing.is_mid_head() => ConnectionEnd::MidHead,
            GuardState::Reading if idle => ConnectionEnd::Idle,
            GuardState::Reading | GuardState::Rejecting { .. } | GuardState::Malformed => {
                ConnectionEnd::MidRequest
            }
        };
        (self.io, end)
    }

    fn apply(&mut self, status: FramingStatus) {
        match status {
            FramingStatus::NeedMore => {}
            FramingStatus::Rejected(rejection) => {
                self.state = GuardState::Rejecting {
                    rejection,
                    discarded: 0,
                }
            }
            FramingStatus::Malformed => self.state = GuardState::Malformed,
        }
    }

    /// Passes buffered bytes to hyper.
    fn pass_buffered(&mut self, buf: &mut ReadBuf<'_>) {
        let len = self.ready.min(buf.remaining());
        buf.put_slice(&self.buffered[..len]);
        self.buffered.advance(len);
        self.ready -= len;
        if self.buffered.is_empty() {
            self.buffered = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + Unpin> FramingGuard<S> {
    /// Reads into hyper's buffer.
    fn poll_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(self.poll_io(cx, buf))?;
        let new = &buf.filled()[before..];
        let step = self.framing.follow(new);
        if step.accepted < new.len() {
            self.buffered.extend_from_slice(&new[step.accepted..]);
            buf.set_filled(before + step.accepted);
        }
        self.apply(step.status);
        Poll::Ready(Ok(()))
    }

    /// Reads into our buffer, behind the incomplete head.
    fn poll_buffered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut chunk = [0; READ_SIZE];
        let mut chunk = ReadBuf::new(&mut chunk);
        std::task::ready!(self.poll_io(cx, &mut chunk))?;
        self.buffered.extend_from_slice(chunk.filled());
        let step = self.framing.follow(&self.buffered);
        self.ready = step.accepted;
        self.apply(step.status);
        Poll::Ready(Ok(()))
    }

    /// Reads and detects that the client has closed the connection.
    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = std::task::ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        if read.is_err() || buf.filled().len() == before {
            self.state = GuardState::PeerClosed;
        }
        Poll::Ready(read)
    }

    /// Waits until all owed responses have been written, and then ends hyper's reading with an
    /// error.
    fn poll_rejecting(
        &mut self,
        cx: &mut Context<'_>,
        rejection: Rejection,
        mut discarded: usize,
    ) -> Poll<io::Result<()>> {
        self.buffered = BytesMut::new();
        if self.exchange.0.is_idle() {
            self.state = GuardState::Rejected(rejection);
            return Poll::Ready(Err(invalid_framing()));
        }
        self.reader = Some(cx.waker().clone());
        // A client that disconnects while it waits for a response must be noticed.
        while discarded < MAX_DISCARDED {
            let mut chunk = [0; READ_SIZE];
            let mut chunk = ReadBuf::new(&mut chunk);
            std::task::ready!(self.poll_io(cx, &mut chunk))?;
            if self.state == GuardState::PeerClosed {
                return Poll::Ready(Ok(()));
            }
            discarded += chunk.filled().len();
            self.state = GuardState::Rejecting {
                rejection,
                discarded,
            };
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> FramingGuard<S> {
    /// Reads bytes that are checked.
    fn poll_checked(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            if self.ready > 0 {
                self.pass_buffered(buf);
                return Poll::Ready(Ok(()));
            }
            match self.state {
                GuardState::Reading if self.buffered.is_empty() => {
                    std::task::ready!(self.poll_direct(cx, buf))?
                }
                GuardState::Reading => std::task::ready!(self.poll_buffered(cx))?,
                GuardState::Rejecting {
                    rejection,
                    discarded,
                } => {
                    return self.poll_rejecting(cx, rejection, discarded);
                }
                GuardState::Malformed | GuardState::Rejected(_) => {
                    return Poll::Ready(Err(invalid_framing()));
                }
                GuardState::PeerClosed => return Poll::Ready(Ok(())),
            }
            // hyper would take an empty read for the end of the stream.
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads bytes of an upgraded connection. A client that has sent anything but a valid request
    /// before the upgrade loses the connection, because those bytes may be missing.
    fn poll_upgraded(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.exchange.0.is_read_aborted(cx) {
            return Poll::Ready(Err(aborted()));
        }
        if !matches!(self.state, GuardState::Reading | GuardState::PeerClosed) {
            return Poll::Ready(Err(invalid_framing()));
        }
        if !self.buffered.is_empty() {
            self.ready = self.buffered.len();
            self.pass_buffered(buf);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S> FramingGuard<S> {
    /// The error for the writer of an upgraded connection that the server ends.
    fn check_writable(&self, cx: &Context<'_>) -> io::Result<()> {
        let exchange = &self.exchange.0;
        if exchange.is_upgraded() && exchange.is_write_aborted(cx) {
            return Err(aborted());
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramingGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.exchange.0.is_upgraded() {
            return this.poll_upgraded(cx, buf);
        }
        let read = this.poll_checked(cx, buf);
        this.read_wait = match &read {
            Poll::Pending => ReadWait::Waiting,
            Poll::Ready(_) => ReadWait::Paused,
        };
        this.close_watch.end_pause();
        read
    }
}

/// The error that hyper and the reader of a body get; the client gets a more specific one.
fn invalid_framing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "invalid framing")
}

/// The error of an upgraded connection that the server ends.
fn aborted() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server shuts down")
}

/// The error of a response whose client has closed the connection.
fn client_closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the client closed the connection",
    )
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for FramingGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_writable(cx)?;
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_writable(cx)?;
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has written all that it has buffered, and whenever it is polled.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        if this.exchange.0.flushed() == Flushed::ResponseWritten
            && let Some(reader) = this.reader.take()
        {
            reader.wake();
        }
        if this.read_wait == ReadWait::Waiting {
            this.read_wait = ReadWait::Unknown;
        } else if this.exchange.0.is_responding()
            && this.close_watch.poll_closed(cx, &this.io).is_ready()
        {
            this.state = GuardState::PeerClosed;
            return Poll::Ready(Err(client_closed()));
        }
        Poll::Ready(Ok(()))
    }

    /// The connection's task closes the socket, because it may still write a rejection. After an
    /// upgrade the service does.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.exchange.0.is_upgraded() {
            self.check_writable(cx)?;
            return Pin::new(&mut self.get_mut().io).poll_shutdown(cx);
        }
        self.poll_flush(cx)
    }
}
