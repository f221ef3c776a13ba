//! The socket of a connection to a backend, with or without TLS around it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection that remembers whether the backend has sent anything, and can move to another runtime.
#[derive(Debug)]
pub(super) struct UpstreamIo {
    transport: Transport,
    flags: SocketFlags,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What a connection and its socket tell each other. hyper owns the socket, so the flags are shared.
#[derive(Debug, Clone, Default)]
pub(super) struct SocketFlags(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// The backend has sent a byte since the last request.
    has_received: AtomicBool,
    /// The runtime that polls the socket next has to wait for its events.
    moves: AtomicBool,
}

impl SocketFlags {
    /// A request begins.
    pub(super) fn reset(&self) {
        self.0.has_received.store(false, Ordering::Relaxed);
    }

    /// Whether the backend has sent a byte since the last request.
    pub(super) fn has_received(&self) -> bool {
        self.0.has_received.load(Ordering::Relaxed)
    }

    /// Lets the runtime that polls the socket next wait for its events.
    pub(super) fn move_to_next_runtime(&self) {
        self.0.moves.store(true, Ordering::Relaxed);
    }
}

impl UpstreamIo {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self {
            transport: Transport::Plain(stream),
            flags: SocketFlags::default(),
        }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self {
            transport: Transport::Tls(Box::new(stream)),
            flags: SocketFlags::default(),
        }
    }

    pub(super) fn flags(&self) -> SocketFlags {
        self.flags.clone()
    }

    /// Moves the socket to the runtime of the caller, if it has to move.
    fn move_if_asked(&mut self) {
        let moves = &self.flags.0.moves;
        if !moves.load(Ordering::Relaxed) {
            return;
        }
        moves.store(false, Ordering::Relaxed);
        let stream = match &mut self.transport {
            Transport::Plain(stream) => stream,
            Transport::Tls(stream) => stream.get_mut().0,
        };
        match registered_here(stream) {
            Ok(moved) => *stream = moved,
            // It works from here too, but each event wakes the thread of the other runtime.
            Err(error) => tracing::debug!(%error, "failed to move a connection to another runtime"),
        }
    }
}

/// The same connection, whose events the runtime of the caller waits for.
fn registered_here(stream: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(SockRef::from(stream).try_clone()?.into())
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.move_if_asked();
        let before = buf.filled().len();
        std::task::ready!(match &mut this.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        })?;
        if buf.filled().len() > before {
            this.flags.0.has_received.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.move_if_asked();
        match &mut this.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.move_if_asked();
        match &mut this.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
