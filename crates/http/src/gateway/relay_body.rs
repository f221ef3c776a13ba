//! The body of a response that passes to the client unchanged.
//!
//! A silent event stream gets comments that keep connections open, between events only. A stream that is
//! cut between two events ends with an event that says so; one that is cut inside an event, or is encoded,
//! is aborted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use hyper::body::{Body, Frame, SizeHint};
use tidegate_router::forward::{ForwardedBody, ForwardedBodyError};
use tokio::time::{Instant, Sleep};

use super::error::ErrorReply;
use super::record::RequestRecord;
use super::reply;
use super::route::ClientApi;

/// The silence after which a comment is sent.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A comment, which clients ignore.
pub(super) const COMMENT: &[u8] = b": keep-alive\n\n";

/// A body that passes to the client unchanged.
pub(super) struct RelayBody {
    inner: ForwardedBody,
    record: RequestRecord,
    /// Set for event streams.
    events: Option<EventStream>,
    /// Aborts the response, once the bytes before it were written.
    abort: Option<ForwardedBodyError>,
    has_ended: bool,
}

/// The position in an event stream.
struct EventStream {
    api: ClientApi,
    line_end: LineEnd,
    last_byte: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What the last bytes of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    /// The end of an event, or the beginning of the stream.
    Event,
    /// The end of a line, with the byte that ended it.
    Line(u8),
    /// Inside a line.
    Inside,
    /// A carriage return that ended an event; a line feed may follow.
    EventCarriageReturn,
}

impl LineEnd {
    fn after(mut self, bytes: &[u8]) -> Self {
        // Only the end matters: no line end reaches back further than four bytes.
        let tail = &bytes[bytes.len().saturating_sub(4)..];
        if tail.len() < bytes.len() {
            self = Self::Inside;
        }
        for byte in tail {
            self = match (self, byte) {
                (Self::Line(b'\r'), b'\n') => Self::Line(b'\n'),
                (Self::EventCarriageReturn, b'\n') => Self::Event,
                (Self::Line(_) | Self::Event, b'\n') => Self::Event,
                (Self::Line(_) | Self::Event | Self::EventCarriageReturn, b'\r') => {
                    Self::EventCarriageReturn
                }
                (Self::Inside, b'\n' | b'\r') => Self::Line(*byte),
                _ => Self::Inside,
            };
        }
        self
    }

    fn is_between_events(self) -> bool {
        matches!(self, Self::Event | Self::EventCarriageReturn)
    }
}

impl RelayBody {
    /// A body that is not an event stream, or whose events cannot be separated.
    pub(super) fn opaque(inner: ForwardedBody, mut record: RequestRecord) -> Self {
        if inner.has_ended() {
            // A body without bytes is not polled.
            record.complete();
        }
        Self {
            inner,
            record,
            events: None,
            abort: None,
            has_ended: false,
        }
    }

    /// An event stream.
    pub(super) fn events(inner: ForwardedBody, record: RequestRecord, api: ClientApi) -> Self {
        let events = EventStream {
            api,
            line_end: LineEnd::Event,
            last_byte: Instant::now(),
            timer: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        };
        Self {
            events: Some(events),
            ..Self::opaque(inner, record)
        }
    }

    /// The frame that tells the client that the stream was cut, or the error that aborts the response.
    fn poll_cut(
        &mut self,
        cx: &mut Context<'_>,
        error: ForwardedBodyError,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        self.record.cut(&error);
        match &self.events {
            Some(events) if events.line_end.is_between_events() => {
                self.has_ended = true;
                let reply = ErrorReply::cut(cut_message(&error));
                let event = reply::error_event(events.api, &reply);
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            Some(_) | None => {
                // An error at once would discard the bytes that hyper has not written yet.
                self.abort = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// What clients read about a stream that was cut.
pub(super) fn cut_message(error: &ForwardedBodyError) -> String {
    match error {
        ForwardedBodyError::Upstream(_) => {
            "the backend closed the connection before the answer was complete".to_owned()
        }
        ForwardedBodyError::Idle(_) | ForwardedBodyError::DeadlineExceeded => error.to_string(),
    }
}

impl EventStream {
    /// A comment, if the stream has been silent for long enough between two events.
    fn poll_comment(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            ready!(self.timer.poll_unpin(cx));
            let silent_until = self.last_byte + KEEP_ALIVE;
            let now = Instant::now();
            if now < silent_until {
                self.timer.as_mut().reset(silent_until);
                continue;
            }
            self.last_byte = now;
            self.timer.as_mut().reset(now + KEEP_ALIVE);
            if self.line_end.is_between_events() {
                return Poll::Ready(Bytes::from_static(COMMENT));
            }
        }
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = ForwardedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        if let Some(error) = this.abort.take() {
            this.has_ended = true;
            return Poll::Ready(Some(Err(error)));
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Pending => {
                let Some(events) = &mut this.events else {
                    return Poll::Pending;
                };
                let comment = ready!(events.poll_comment(cx));
                Poll::Ready(Some(Ok(Frame::data(comment))))
            }
            Poll::Ready(None) => {
                this.has_ended = true;
                this.record.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => this.poll_cut(cx, error),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.record.bytes(data);
                    if let Some(events) = &mut this.events {
                        events.line_end = events.line_end.after(data);
                        events.last_byte = Instant::now();
                    }
                }
                if this.inner.has_ended() {
                    this.record.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || (self.abort.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.events {
            // Comments may be added.
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_event_is_found_for_all_line_ends() {
        for (text, expected) in [
            ("", true),
            ("data: a", false),
            ("data: a\n", false),
            ("data: a\n\n", true),
            ("data: a\r\n\r\n", true),
            ("data: a\r\n", false),
            ("data: a\r\r", true),
            ("data: a\n\ndata", false),
            ("\n\n\n", true),
        ] {
            let mut split = LineEnd::Event;
            for byte in text.as_bytes() {
                split = split.after(&[*byte]);
            }
            let whole = LineEnd::Event.after(text.as_bytes());
            assert_eq!(split.is_between_events(), expected, "{text:?} byte by byte");
            assert_eq!(whole.is_between_events(), expected, "{text:?} at once");
        }
    }
}
