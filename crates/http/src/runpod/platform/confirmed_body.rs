//! A response body that reports whether it was written.

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

/// Notified when a response was written. Dropped before [`OnWritten::written`]: it was not.
pub(super) trait OnWritten: Send + Unpin + 'static {
    /// The response was written to a connection that was still open.
    fn written(self);
}

impl OnWritten for Vec<JobOffer> {
    fn written(self) {
        self.into_iter().for_each(JobOffer::confirm_delivered);
    }
}

/// A body that knows whether it was written. A client that disconnects earlier did not get it.
///
/// It does not state its length: hyper would not poll it again after the last byte, and a failed write
/// would go unnoticed.
struct ConfirmedBody<C> {
    json: Option<Bytes>,
    /// Whether the connection was flushed once, so that a failed write is known.
    flushed: bool,
    on_written: Option<C>,
}

/// A JSON response that notifies `on_written`.
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
            // hyper flushes the frames so far while the body is pending.
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
