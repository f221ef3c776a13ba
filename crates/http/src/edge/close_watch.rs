//! Notices that the client closes the connection while hyper does not read from it.
//!
//! hyper reads the socket while a handler works, and so notices a close, unless bytes that it cannot
//! pass on are in front of it: a body that the handler does not read, or the next request. Here the
//! system reports the close without a read. That needs a descriptor of its own, because the waker of
//! the socket's owner is called for readable bytes only; so it begins after a short time, which few
//! requests reach.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long hyper may not read before the socket is watched. Up to twice this passes in practice.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// Watches the socket of one connection.
#[derive(Default)]
pub(super) struct CloseWatch {
    /// How often hyper has begun to read again.
    pauses: u64,
    timer: Option<WatchTimer>,
    closed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Runs across requests, so that a short pause costs no timer of its own.
struct WatchTimer {
    sleep: Pin<Box<Sleep>>,
    /// The pause in which it was started.
    pause: u64,
}

impl CloseWatch {
    /// hyper reads again.
    pub(super) fn end_pause(&mut self) {
        self.pauses = self.pauses.wrapping_add(1);
        self.closed = None;
    }

    /// Called while hyper does not read. Ready when the client has closed the connection.
    pub(super) fn poll_closed(&mut self, cx: &mut Context<'_>, socket: &impl AsFd) -> Poll<()> {
        loop {
            if let Some(closed) = &mut self.closed {
                return closed.as_mut().poll(cx);
            }
            let pause = self.pauses;
            let timer = self.timer.get_or_insert_with(|| WatchTimer {
                sleep: Box::pin(sleep(WATCH_AFTER)),
                pause,
            });
            ready!(timer.sleep.as_mut().poll(cx));
            let is_same_pause = timer.pause == pause;
            self.timer = None;
            if is_same_pause {
                // Without a free descriptor the close is noticed when hyper reads or writes again.
                self.closed = closed(socket).ok();
                if self.closed.is_none() {
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Waits until the client has closed its sending side.
fn closed(socket: &impl AsFd) -> io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let socket: OwnedFd = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
    // Only its readiness is used, so it may be a Unix socket as well.
    let socket = TcpStream::from_std(socket.into())?;
    Ok(Box::pin(async move {
        // Unlike `READABLE`, this is not ready because of unread bytes.
        socket.ready(Interest::PRIORITY).await.map(drop).ok();
    }))
}
