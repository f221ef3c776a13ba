//! The body of a forwarded response: owns the permit of its request and limits the time without bytes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tidegate_net::upstream::{UpstreamBody, UpstreamError, UpstreamUpgraded};
use tokio::time::{Instant, Sleep};

use super::attempt::failure_kind;
use super::attempt_span::AttemptSpan;
use super::cancel::CancelCall;
use crate::health::{FailureKind, Verdict};
use crate::permits::EndpointPermit;

/// The body of a forwarded response. Dropping it before its end stops the work of the backend.
pub struct ForwardedBody {
    first: Option<Bytes>,
    rest: UpstreamBody,
    idle: Duration,
    deadline: Instant,
    last_byte: Instant,
    /// Set while the reader waits. It is not moved with each byte: when it fires, the time of the last
    /// byte decides.
    timer: Option<Pin<Box<Sleep>>>,
    permit: Option<EndpointPermit>,
    cancel: Option<CancelCall>,
    /// Ends with the body.
    span: AttemptSpan,
}

/// The body ended before it was complete.
#[derive(Debug, thiserror::Error)]
pub enum ForwardedBodyError {
    /// The connection failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// No byte came for too long.
    #[error("the backend sent nothing for {0:?}")]
    Idle(Duration),
    /// The time of the whole request is over.
    #[error("the request did not end within the time limit of the model")]
    DeadlineExceeded,
}

impl ForwardedBody {
    pub(super) fn new(
        first: Option<Bytes>,
        rest: UpstreamBody,
        idle: Duration,
        deadline: Instant,
    ) -> Self {
        Self {
            first,
            rest,
            idle,
            deadline,
            last_byte: Instant::now(),
            timer: None,
            permit: None,
            cancel: None,
            span: AttemptSpan::default(),
        }
    }

    pub(super) fn with_permit(
        mut self,
        permit: EndpointPermit,
        cancel: Option<CancelCall>,
    ) -> Self {
        self.permit = Some(permit);
        self.cancel = cancel;
        self
    }

    pub(super) fn with_span(mut self, span: AttemptSpan) -> Self {
        self.span = span;
        self
    }

    /// Whether all bytes have been read.
    pub fn has_ended(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    /// The raw connection and the permit, if the response is 101 Switching Protocols.
    pub fn into_upgraded(mut self) -> Option<(UpstreamUpgraded, Option<EndpointPermit>)> {
        let permit = self.permit.take();
        let stream = std::mem::take(&mut self.rest).into_upgraded()?;
        Some((stream, permit))
    }

    /// Keeps the permit in use after the response, until an event of the backend or a timeout.
    pub(super) fn detach_permit(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.detach();
        }
    }

    fn poll_rest(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) {
            self.last_byte = Instant::now();
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        loop {
            let limit = (self.last_byte + self.idle).min(self.deadline);
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(limit)));
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            if now >= self.deadline {
                return Poll::Ready(Some(Err(ForwardedBodyError::DeadlineExceeded)));
            }
            if now >= self.last_byte + self.idle {
                return Poll::Ready(Some(Err(ForwardedBodyError::Idle(self.idle))));
            }
            self.timer = None;
        }
    }

    /// Tells the endpoint about a body that was cut.
    fn record_failure(&self, error: &ForwardedBodyError) {
        let kind = match error {
            ForwardedBodyError::Upstream(error) => failure_kind(error),
            ForwardedBodyError::Idle(_) | ForwardedBodyError::DeadlineExceeded => {
                Some(FailureKind::IdleTimeout)
            }
        };
        if let (Some(permit), Some(kind)) = (&self.permit, kind) {
            permit.record(Verdict::Failure(kind));
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = ForwardedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let frame = ready!(this.poll_rest(cx));
        match &frame {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                this.record_failure(error);
                this.span.failed("response_cut");
                let is_cut = matches!(error, ForwardedBodyError::Upstream(_));
                let rest = std::mem::take(&mut this.rest);
                // A backend that only was too slow still works.
                if let (Some(permit), Some(cancel), false) =
                    (this.permit.take(), this.cancel.take(), is_cut)
                {
                    cancel.stop_body(rest, permit);
                }
            }
            None => this.permit = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.rest.size_hint();
        if let Some(first) = &self.first {
            let len = first.len() as u64;
            let (lower, upper) = (hint.lower(), hint.upper());
            if let Some(upper) = upper {
                hint.set_upper(upper + len);
            }
            hint.set_lower(lower + len);
        }
        hint
    }
}

impl Drop for ForwardedBody {
    fn drop(&mut self) {
        let is_complete = self.rest.is_end_stream();
        if let (Some(permit), Some(cancel), false) =
            (self.permit.take(), self.cancel.take(), is_complete)
        {
            cancel.stop_body(std::mem::take(&mut self.rest), permit);
        }
    }
}

impl fmt::Debug for ForwardedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedBody")
            .field("first", &self.first.as_ref().map(Bytes::len))
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
