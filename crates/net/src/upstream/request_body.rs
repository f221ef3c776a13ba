//! The body of a request to a backend.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// An error of any kind.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a request to a backend.
#[derive(Default)]
pub enum UpstreamRequestBody {
    /// No body.
    #[default]
    Empty,
    /// A body that is complete.
    Full(Bytes),
    /// A body that is still arriving. A request with such a body is sent once, on a fresh connection.
    Stream(Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl UpstreamRequestBody {
    /// The same body again, if all of it is available.
    pub(super) fn replay(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Full(bytes) => Some(Self::Full(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}

impl Body for UpstreamRequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Stream(stream) => stream.as_mut().poll_frame(cx),
            body => match std::mem::take(body) {
                Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Self::Empty | Self::Stream(_) => Poll::Ready(None),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(stream) => stream.size_hint(),
        }
    }
}

impl fmt::Debug for UpstreamRequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}
