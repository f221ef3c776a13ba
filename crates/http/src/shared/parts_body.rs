//! A response body in several parts, which are written without being joined.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The parts that remain to be written.
pub(crate) struct PartsBody {
    parts: std::vec::IntoIter<Bytes>,
}

impl PartsBody {
    pub(crate) fn new(parts: Vec<Bytes>) -> Self {
        Self {
            parts: parts.into_iter(),
        }
    }
}

impl Body for PartsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.parts.next().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let parts = self.parts.as_slice().iter();
        SizeHint::with_exact(parts.map(|part| part.len() as u64).sum())
    }
}
