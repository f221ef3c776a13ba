//! Stands between the socket and hyper: hands on only requests whose framing is beyond doubt.
//!
//! A head that comes in one piece is read where hyper wants it and looked at there; only what comes in
//! pieces is kept back and copied. After a doubtful head nothing is handed on. The answers that are
//! owed are still written, then hyper is given an error, and the connection's task says why.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exchange::{Exchange, Flushed};
use super::framing::{Framing, Rest};
use super::rejection::Rejection;

/// How much is read at once of what comes in pieces.
const PIECE: usize = 4096;
/// How much may follow a refused head while answers are owed. More stays in the socket.
const MAX_IGNORED: usize = 64 * 1024;

/// A socket that is watched.
pub(super) struct Guard<S> {
    io: S,
    framing: Framing,
    /// Read, and not handed on.
    held: BytesMut,
    /// So many of these may be handed on.
    ready: usize,
    verdict: Verdict,
    exchange: Arc<Exchange>,
    /// Who waits for the exchange to come back.
    waiting: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing is wrong so far.
    Good,
    /// A head is refused; so many bytes after it have been thrown away.
    Refused {
        rejection: Rejection,
        ignored: usize,
    },
    /// hyper has been told that there is nothing more to read.
    Told(Rejection),
    /// A body goes wrong.
    Broken,
    /// The caller has left.
    Gone,
}

/// In which state a connection was left by hyper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Between two requests.
    Clean,
    /// A head has begun to come.
    MidHead,
    /// With bytes on their way that nobody reads.
    MidRequest,
    /// Because of a head that is refused.
    Refused(Rejection),
    /// By the caller.
    Gone,
}

impl<S> Guard<S> {
    pub(super) fn new(io: S, exchange: Arc<Exchange>) -> Self {
        Self {
            io,
            framing: Framing::new(),
            held: BytesMut::new(),
            ready: 0,
            verdict: Verdict::Good,
            exchange,
            waiting: None,
        }
    }

    /// The socket, and how it was left.
    pub(super) fn into_parts(self) -> (S, Left) {
        let left = match self.verdict {
            Verdict::Told(rejection) => Left::Refused(rejection),
            Verdict::Gone => Left::Gone,
            Verdict::Good if self.framing.is_mid_head() => Left::MidHead,
            Verdict::Good if !self.framing.is_mid_request() && self.held.is_empty() => Left::Clean,
            Verdict::Good | Verdict::Refused { .. } | Verdict::Broken => Left::MidRequest,
        };
        (self.io, left)
    }

    /// Notes what the rest of the bytes is.
    fn judge(&mut self, rest: Rest) {
        match rest {
            Rest::Unfinished => {}
            Rest::Refused(rejection) => {
                self.verdict = Verdict::Refused {
                    rejection,
                    ignored: 0,
                }
            }
            Rest::Broken => self.verdict = Verdict::Broken,
        }
    }

    /// Hands on what was kept back.
    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let len = self.ready.min(buf.remaining());
        buf.put_slice(&self.held[..len]);
        self.held.advance(len);
        self.ready -= len;
        if self.held.is_empty() {
            self.held = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// Reads where hyper wants it.
    fn poll_straight(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(self.poll_io(cx, buf))?;
        let fresh = &buf.filled()[before..];
        let followed = self.framing.follow(fresh);
        if followed.passed < fresh.len() {
            self.held.extend_from_slice(&fresh[followed.passed..]);
            buf.set_filled(before + followed.passed);
        }
        self.judge(followed.rest);
        Poll::Ready(Ok(()))
    }

    /// Reads behind what is kept back.
    fn poll_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; PIECE];
        let mut piece = ReadBuf::new(&mut piece);
        std::task::ready!(self.poll_io(cx, &mut piece))?;
        self.held.extend_from_slice(piece.filled());
        let followed = self.framing.follow(&self.held);
        self.ready = followed.passed;
        self.judge(followed.rest);
        Poll::Ready(Ok(()))
    }

    /// Reads, and notices the end.
    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = std::task::ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        if read.is_err() || buf.filled().len() == before {
            self.verdict = Verdict::Gone;
        }
        Poll::Ready(read)
    }

    /// Waits until all answers have been written, and then says that there is nothing more to read.
    fn poll_refused(
        &mut self,
        cx: &mut Context<'_>,
        rejection: Rejection,
        mut ignored: usize,
    ) -> Poll<io::Result<()>> {
        self.held = BytesMut::new();
        if self.exchange.is_idle() {
            self.verdict = Verdict::Told(rejection);
            return Poll::Ready(Err(doubt()));
        }
        self.waiting = Some(cx.waker().clone());
        // A caller that leaves while it waits for an answer must be noticed.
        while ignored < MAX_IGNORED {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            std::task::ready!(self.poll_io(cx, &mut piece))?;
            if self.verdict == Verdict::Gone {
                return Poll::Ready(Ok(()));
            }
            ignored += piece.filled().len();
            self.verdict = Verdict::Refused { rejection, ignored };
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        loop {
            if this.ready > 0 {
                this.hand_on(buf);
                return Poll::Ready(Ok(()));
            }
            match this.verdict {
                Verdict::Good if this.held.is_empty() => {
                    std::task::ready!(this.poll_straight(cx, buf))?
                }
                Verdict::Good => std::task::ready!(this.poll_behind(cx))?,
                Verdict::Refused { rejection, ignored } => {
                    return this.poll_refused(cx, rejection, ignored);
                }
                Verdict::Broken | Verdict::Told(_) => return Poll::Ready(Err(doubt())),
                Verdict::Gone => return Poll::Ready(Ok(())),
            }
            // Nothing would mean the end to hyper.
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// What the reader of a connection is told; the caller is told more.
fn doubt() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its framing is not valid")
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
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

    /// hyper flushes when it has written all that it holds.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        if this.exchange.flushed() == Flushed::ResponseWritten
            && let Some(reader) = this.waiting.take()
        {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }

    /// The connection's task closes the socket, because it may have a last word to say.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
