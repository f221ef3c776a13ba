//! The answer that carries jobs to a worker.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::Frame;
use tidegate_remote::Parcel;

/// A body that knows whether it was written. Whoever hangs up before has not got the jobs.
///
/// It does not say its length: hyper would not look at it again after the last byte, and nobody would know.
struct Handout {
    json: Option<Bytes>,
    /// Whether the connection has had a chance to fail.
    flushed: bool,
    parcels: Vec<Parcel>,
}

/// The jobs, as this JSON.
pub(super) fn body(json: Bytes, parcels: Vec<Parcel>) -> Body {
    Body::new(Handout { json: Some(json), flushed: false, parcels })
}

impl HttpBody for Handout {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(json) = self.json.take() {
            return Poll::Ready(Some(Ok(Frame::data(json))));
        }
        if !self.flushed {
            // What has come so far is written while there is nothing more.
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.parcels.drain(..).for_each(Parcel::arrived);
        Poll::Ready(None)
    }
}
