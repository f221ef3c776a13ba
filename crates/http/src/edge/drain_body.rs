//! Drains what a handler leaves unread of a request's body.
//!
//! A client that gets an early response may still be sending. hyper checks once whether the rest
//! has arrived and closes the connection without notice if it has not: a client that sends head and
//! body separately would find a closed connection under its next request. So a small rest that is
//! on its way is read before the response is written; otherwise the response carries `connection:
//! close`.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use tokio::time::timeout;

/// A larger rest is not read, in bytes.
const MAX_DRAINED: usize = 64 * 1024;
/// How long to wait for the rest; the response waits as long.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Drains the unread rest of one request body.
pub(super) struct BodyDrain {
    /// `None` for a request without a body, so that it costs nothing.
    slot: Option<BodySlot>,
    send_mode: BodySendMode,
}

/// Holds a body after its handler has dropped it.
type BodySlot = Arc<Mutex<Option<Incoming>>>;

/// When a client sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodySendMode {
    /// Right after the head.
    Immediate,
    /// After the server's `100 Continue`.
    AfterContinue,
}

/// The result of draining a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainResult {
    /// Nothing is left to read: the next request can follow.
    Drained,
    /// The rest is too large, too slow, or sent only after `100 Continue`.
    Remaining,
}

impl BodyDrain {
    pub(super) fn of(request: &Request<Incoming>) -> Self {
        let slot = (!request.body().is_end_stream()).then(BodySlot::default);
        let send_mode = if request.headers().contains_key(EXPECT) {
            BodySendMode::AfterContinue
        } else {
            BodySendMode::Immediate
        };
        Self { slot, send_mode }
    }

    /// The body that the handler reads.
    pub(super) fn lend(&self, body: Incoming) -> axum::body::Body {
        let Some(slot) = &self.slot else {
            return axum::body::Body::empty();
        };
        axum::body::Body::new(LentBody {
            body: Some(body),
            slot: Arc::clone(slot),
        })
    }

    /// Reads what the handler has left, if it is small and arrives soon.
    pub(super) async fn drain(&self) -> DrainResult {
        let unread = self
            .slot
            .as_ref()
            .and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(body) = unread else {
            return DrainResult::Drained;
        };
        if self.send_mode == BodySendMode::AfterContinue
            || body.size_hint().lower() > MAX_DRAINED as u64
        {
            return DrainResult::Remaining;
        }
        timeout(DRAIN_TIMEOUT, read_all(body))
            .await
            .unwrap_or(DrainResult::Remaining)
    }
}

async fn read_all(mut body: Incoming) -> DrainResult {
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return DrainResult::Remaining;
        };
        len += frame.data_ref().map_or(0, Bytes::len);
        if len > MAX_DRAINED {
            return DrainResult::Remaining;
        }
    }
    DrainResult::Drained
}

/// A body that goes back to its [`BodyDrain`] when the handler drops it before its end.
struct LentBody {
    /// `None` after the end of the body.
    body: Option<Incoming>,
    slot: BodySlot,
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !body.is_end_stream());
        if let Some(body) = unread {
            *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}
