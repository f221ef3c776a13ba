//! An answer whose sender wants to know whether it was written.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use tidegate_remote::JobOffer;

/// What goes with an answer. Dropped before it is [`OnWritten::written`], it did not get there.
pub(super) trait OnWritten: Send + Unpin + 'static {
    /// The answer was written to a connection that still stood.
    fn written(self);
}

impl OnWritten for Vec<JobOffer> {
    fn written(self) {
        self.into_iter().for_each(JobOffer::confirm_delivered);
    }
}

/// A body that knows whether it was written. Whoever hangs up before has not got the on_written.
///
/// It does not say its length: hyper would not look at it again after the last byte, and nobody would know.
struct ConfirmedBody<C> {
    json: Option<Bytes>,
    /// Whether the connection has had a chance to fail.
    flushed: bool,
    on_written: Option<C>,
}

/// The on_written, as this JSON.
pub(super) fn confirmed_response(json: Bytes, on_written: impl OnWritten) -> Response {
    let mut response = Response::new(Body::new(ConfirmedBody {
        json: Some(json),
        flushed: false,
        on_written: Some(on_written),
    }));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl<C: OnWritten> HttpBody for ConfirmedBody<C> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(json) = self.json.take() {
            return Poll::Ready(Some(Ok(Frame::data(json))));
        }
        if !self.flushed {
            // What has come so far is written while there is nothing more.
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(on_written) = self.on_written.take() {
            on_written.written();
        }
        Poll::Ready(None)
    }
}
