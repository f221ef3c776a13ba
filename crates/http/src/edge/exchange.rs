//! The state of a connection's request/response exchange: whether a response is still owed.
//!
//! hyper keeps reading while a handler works, to notice that the client has disconnected. So the
//! reader cannot tell from a call to `poll_read` whether the last response has been written; it
//! checks here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// No response is owed.
const IDLE: u8 = 0;
/// A request has been read; its response is not complete.
const RESPONDING: u8 = 1;
/// hyper has taken the whole response and has not flushed it.
const UNFLUSHED: u8 = 2;

/// Shared by the reader of a connection and the responses that are written to it. One task polls
/// all of them, so the order of its steps is the order that is seen here.
#[derive(Debug, Default)]
pub(super) struct Exchange(AtomicU8);

impl Exchange {
    /// A request has been read. A response is owed until its body is used up.
    pub(super) fn begin_response(self: &Arc<Self>) -> PendingResponse {
        self.0.store(RESPONDING, Ordering::Relaxed);
        PendingResponse(Arc::clone(self))
    }

    /// Everything written so far has reached the socket.
    pub(super) fn flushed(&self) -> Flushed {
        match self
            .0
            .compare_exchange(UNFLUSHED, IDLE, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Flushed::ResponseWritten,
            Err(_) => Flushed::Nothing,
        }
    }

    /// Whether no response is owed to the client.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IDLE
    }
}

/// What a flush has completed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    ResponseWritten,
    Nothing,
}

/// A response that is owed. Dropped when hyper has taken all of it.
pub(super) struct PendingResponse(Arc<Exchange>);

impl PendingResponse {
    pub(super) fn track<B>(self, body: B) -> TrackedBody<B> {
        TrackedBody {
            body,
            _pending: self,
        }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.0.store(UNFLUSHED, Ordering::Relaxed);
    }
}

/// A response body that marks the response as taken when hyper drops it.
pub(super) struct TrackedBody<B> {
    body: B,
    _pending: PendingResponse,
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
    fn the_exchange_is_idle_after_the_response_was_taken_and_flushed() {
        let exchange = Arc::new(Exchange::default());
        assert!(exchange.is_idle());
        let body = exchange
            .begin_response()
            .track(http_body_util::Empty::<Bytes>::new());
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::Nothing, "part of a response");
        drop(body);
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::ResponseWritten);
        assert!(exchange.is_idle());
    }
}
