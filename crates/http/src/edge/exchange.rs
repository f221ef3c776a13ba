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
use futures_util::task::AtomicWaker;
use hyper::body::{Body, Frame, SizeHint};

use super::request_span::RequestSpan;

/// No response is owed.
const IDLE: u8 = 0;
/// A request has been read; its response is not complete.
const RESPONDING: u8 = 1;
/// hyper has taken the whole response and has not flushed it.
const UNFLUSHED: u8 = 2;
/// The response is `101 Switching Protocols`: all further bytes belong to the service.
const UPGRADED: u8 = 3;
/// The server ends the upgraded connection.
const ABORTED: u8 = 4;
/// The service has dropped the upgraded connection.
const CLOSED: u8 = 5;

/// Shared by the reader of a connection and the responses that are written to it. One task polls
/// all of them, so the order of its steps is the order that is seen here. After an upgrade the
/// service may use the connection in a task of its own.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    state: AtomicU8,
    /// The task of the connection, which waits for the end of an upgraded connection.
    on_closed: AtomicWaker,
    /// The service's reader and writer of an upgraded connection.
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Exchange {
    /// A request has been read. A response is owed until its body is used up.
    pub(super) fn begin_response(self: &Arc<Self>) -> PendingResponse {
        self.state.store(RESPONDING, Ordering::Relaxed);
        PendingResponse(Arc::clone(self))
    }

    /// Everything written so far has reached the socket.
    pub(super) fn flushed(&self) -> Flushed {
        match self
            .state
            .compare_exchange(UNFLUSHED, IDLE, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Flushed::ResponseWritten,
            Err(_) => Flushed::Nothing,
        }
    }

    /// Whether no response is owed to the client.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Whether the handler or its response are not complete.
    pub(super) fn is_responding(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RESPONDING
    }

    /// Whether the connection belongs to the service.
    pub(super) fn is_upgraded(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= UPGRADED
    }

    /// Waits until the service has dropped the upgraded connection.
    pub(super) async fn closed(&self) {
        std::future::poll_fn(|cx| {
            self.on_closed.register(cx.waker());
            match self.state.load(Ordering::Acquire) {
                CLOSED => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Ends the upgraded connection: its reader and its writer get errors.
    pub(super) fn abort_upgraded(&self) {
        self.transition(UPGRADED, ABORTED);
        self.reader.wake();
        self.writer.wake();
    }

    /// Whether the upgraded connection is aborted; if it is not, the reader is woken then.
    pub(super) fn is_read_aborted(&self, cx: &Context<'_>) -> bool {
        self.reader.register(cx.waker());
        self.state.load(Ordering::Acquire) == ABORTED
    }

    /// Like [`Exchange::is_read_aborted`], for the writer.
    pub(super) fn is_write_aborted(&self, cx: &Context<'_>) -> bool {
        self.writer.register(cx.waker());
        self.state.load(Ordering::Acquire) == ABORTED
    }

    fn transition(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The socket's share of the exchange. Its drop ends an upgraded connection.
pub(super) struct SocketExchange(pub(super) Arc<Exchange>);

impl Drop for SocketExchange {
    fn drop(&mut self) {
        if self.0.transition(UPGRADED, CLOSED) || self.0.transition(ABORTED, CLOSED) {
            self.0.on_closed.wake();
        }
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
    pub(super) fn track<B>(self, body: B, span: Option<Box<RequestSpan>>) -> TrackedBody<B> {
        TrackedBody {
            body,
            _pending: self,
            _span: span,
        }
    }

    /// Gives the connection to the service, together with a response `101`.
    pub(super) fn upgrade(&self) {
        self.0.transition(RESPONDING, UPGRADED);
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.0.transition(RESPONDING, UNFLUSHED);
    }
}

/// A response body that marks the response as taken when hyper drops it.
pub(super) struct TrackedBody<B> {
    body: B,
    _pending: PendingResponse,
    /// Ends with the response.
    _span: Option<Box<RequestSpan>>,
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
            .track(http_body_util::Empty::<Bytes>::new(), None);
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::Nothing, "part of a response");
        drop(body);
        assert!(!exchange.is_idle());
        assert_eq!(exchange.flushed(), Flushed::ResponseWritten);
        assert!(exchange.is_idle());
    }
}
