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
use tidegate_remote::Parcel;

/// What goes with an answer. Dropped before it is [`Cargo::written`], it did not get there.
pub(super) trait Cargo: Send + Unpin + 'static {
    /// The answer was written to a connection that still stood.
    fn written(self);
}

impl Cargo for Vec<Parcel> {
    fn written(self) {
        self.into_iter().for_each(Parcel::arrived);
    }
}

/// A body that knows whether it was written. Whoever hangs up before has not got the cargo.
///
/// It does not say its length: hyper would not look at it again after the last byte, and nobody would know.
struct Handout<C> {
    json: Option<Bytes>,
    /// Whether the connection has had a chance to fail.
    flushed: bool,
    cargo: Option<C>,
}

/// The cargo, as this JSON.
pub(super) fn handed(json: Bytes, cargo: impl Cargo) -> Response {
    let mut response = Response::new(Body::new(Handout {
        json: Some(json),
        flushed: false,
        cargo: Some(cargo),
    }));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl<C: Cargo> HttpBody for Handout<C> {
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
        if let Some(cargo) = self.cargo.take() {
            cargo.written();
        }
        Poll::Ready(None)
    }
}
