//! Whose turn it is on a connection: the caller's to ask, or ours to answer.
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
pub(super) struct Turn(AtomicU8);

impl Turn {
    /// A request has been read. The turn is ours until the answer's body is used up.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        self.0.store(ANSWERING, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }

    /// All that was written has reached the socket.
    pub(super) fn flushed(&self) -> Flushed {
        match self
            .0
            .compare_exchange(WRITTEN, ASKING, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Flushed::AnswerIsOver,
            Err(_) => Flushed::Nothing,
        }
    }

    /// Whether nothing is owed to the caller.
    pub(super) fn is_callers(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASKING
    }
}

/// What a flush has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    AnswerIsOver,
    Nothing,
}

/// An answer that is owed. Dropped when hyper has taken all of it.
pub(super) struct Answering(Arc<Turn>);

impl Answering {
    pub(super) fn with<B>(self, body: B) -> Answer<B> {
        Answer { body, _turn: self }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.store(WRITTEN, Ordering::Relaxed);
    }
}

/// A body that holds the turn.
pub(super) struct Answer<B> {
    body: B,
    _turn: Answering,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
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
        let turn = Arc::new(Turn::default());
        assert!(turn.is_callers());
        let answer = turn.answer().with(http_body_util::Empty::<Bytes>::new());
        assert!(!turn.is_callers());
        assert_eq!(turn.flushed(), Flushed::Nothing, "a piece of an answer");
        drop(answer);
        assert!(!turn.is_callers());
        assert_eq!(turn.flushed(), Flushed::AnswerIsOver);
        assert!(turn.is_callers());
    }
}
