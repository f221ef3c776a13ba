//! Whose exchange it is on a connection: the caller's to ask, or ours to answer.
//!
//! hyper keeps reading while a handler works, to notice that the caller has left. So the reader cannot
//! tell from being asked to read whether the last answer has been written; it asks here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

const ASKING: u8 = 0;
const ANSWERING: u8 = 1;
const WRITTEN: u8 = 2;

/// Shared by the reader of a connection and the answers that are written to it. One task polls all of
/// them, so the order of its steps is the order that is seen here.
#[derive(Debug, Default)]
pub(super) struct Exchange(AtomicU8);

impl Exchange {
    /// A request has been read. The exchange is ours until the answer's body is used up.
    pub(super) fn answer(self: &Arc<Self>) -> PendingResponse {
        self.0.store(ANSWERING, Ordering::Relaxed);
        PendingResponse(Arc::clone(self))
    }

    /// All that was written has reached the socket.
    pub(super) fn flushed(&self) -> Flushed {
        match self
            .0
            .compare_exchange(WRITTEN, ASKING, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Flushed::ResponseWritten,
            Err(_) => Flushed::Nothing,
        }
    }

    /// Whether nothing is owed to the caller.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASKING
    }
}

/// What a flush has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    ResponseWritten,
    Nothing,
}

/// An answer that is owed. Dropped when hyper has taken all of it.
pub(super) struct PendingResponse(Arc<Exchange>);

impl PendingResponse {
    pub(super) fn with<B>(self, body: B) -> TrackedBody<B> {
        TrackedBody { body, _turn: self }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.0.store(WRITTEN, Ordering::Relaxed);
    }
}

/// A body that holds the exchange.
pub(super) struct TrackedBody<B> {
    body: B,
    _turn: PendingResponse,
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_goes_back_when_the_answer_has_been_written_and_flushed() {
        let exchange = Arc::new(Exchange::default());
        assert!(exchange.is_idle());
        let answer = exchange
            .answer()
            .with(http_body_util::Empty::<Bytes>::new());
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::Nothing, "a piece of an answer");
        drop(answer);
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::ResponseWritten);
        assert!(exchange.is_idle());
    }
}
