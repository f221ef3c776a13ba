//! What a handler leaves unread of a request's body.
//!
//! A caller that is answered early may still be sending. hyper looks once whether the rest is there, and hangs
//! up without a word if it is not: a caller that sends head and body apart would find a closed connection under
//! its next request. So a rest that is small and on its way is read before the answer is written; for every
//! other the answer says that the connection ends with it.

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

/// More than this is not waited for, in bytes.
const MAX_REST: usize = 64 * 1024;
/// And no longer than this: the answer waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Looks after what a handler leaves of one body.
pub(super) struct BodyDrain {
    /// Requests without a body pay nothing for it.
    place: Option<Place>,
    sender: Sender,
}

/// Where a body lies after its handler has dropped it.
type Place = Arc<Mutex<Option<Incoming>>>;

/// When a caller sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// With the head.
    AtOnce,
    /// When it is asked for.
    Waits,
}

/// What became of the rest of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// There is nothing more to read: the next request can follow.
    None,
    /// It is too much, too slow, or not sent before somebody asks for it.
    Left,
}

impl BodyDrain {
    pub(super) fn of(request: &Request<Incoming>) -> Self {
        let place = (!request.body().is_end_stream()).then(Place::default);
        let sender = if request.headers().contains_key(EXPECT) {
            Sender::Waits
        } else {
            Sender::AtOnce
        };
        Self { place, sender }
    }

    /// The body for a handler.
    pub(super) fn lend(&self, body: Incoming) -> ReclaimedBody {
        ReclaimedBody {
            body: Some(body),
            place: self.place.clone(),
        }
    }

    /// Reads what the handler has left, if it can be had soon.
    pub(super) async fn read(&self) -> Rest {
        let left = self
            .place
            .as_ref()
            .and_then(|place| place.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(body) = left else { return Rest::None };
        if self.sender == Sender::Waits || body.size_hint().lower() > MAX_REST as u64 {
            return Rest::Left;
        }
        timeout(PATIENCE, read_all(body))
            .await
            .unwrap_or(Rest::Left)
    }
}

async fn read_all(mut body: Incoming) -> Rest {
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Rest::Left };
        len += frame.data_ref().map_or(0, Bytes::len);
        if len > MAX_REST {
            return Rest::Left;
        }
    }
    Rest::None
}

/// A body that comes back when its reader drops it before its end.
pub(super) struct ReclaimedBody {
    /// `None` after its end.
    body: Option<Incoming>,
    place: Option<Place>,
}

impl Body for ReclaimedBody {
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

impl Drop for ReclaimedBody {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if let (Some(body), Some(place)) = (rest, &self.place) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}
