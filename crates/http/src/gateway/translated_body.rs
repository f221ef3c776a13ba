//! A stream of generated text on its way from the format of a backend to the format of a client's API.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tidegate_core::text_generation::{TextError, TextErrorKind, TextEvent};
use tidegate_router::backend::{AnswerFormat, StreamDecoder};
use tidegate_router::forward::{ForwardedBody, ForwardedBodyError};
use tokio::time::{Instant, Sleep};

use super::record::RequestRecord;
use super::relay_body::{COMMENT, KEEP_ALIVE, cut_message};
use crate::openai::render::OpenAiTextRenderer;
use crate::workers_ai;

/// How long the end of a body may take after the text is complete.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// Renders the events of a text for a client's API.
pub(super) enum StreamRenderer {
    /// OpenAI's.
    OpenAi(Box<OpenAiTextRenderer>),
    /// Workers AI.
    WorkersAi,
}

impl StreamRenderer {
    /// What comes before the text.
    pub(super) fn start(&self) -> String {
        match self {
            Self::OpenAi(renderer) => renderer.stream_start(),
            Self::WorkersAi => String::new(),
        }
    }

    /// One event.
    pub(super) fn event(&self, event: &TextEvent) -> String {
        match self {
            Self::OpenAi(renderer) => renderer.stream_event(event),
            Self::WorkersAi => workers_ai::render::stream_event(event),
        }
    }
}

/// A translated stream.
pub(super) struct TranslatedBody {
    /// `None` when the text has ended.
    inner: Option<ForwardedBody>,
    decoder: StreamDecoder,
    renderer: StreamRenderer,
    record: RequestRecord,
    has_started: bool,
    /// Whether the text is complete, and only the end of the body is missing.
    is_finishing: bool,
    timer: Pin<Box<Sleep>>,
}

impl TranslatedBody {
    pub(super) fn new(
        inner: ForwardedBody,
        format: &AnswerFormat,
        renderer: StreamRenderer,
        record: RequestRecord,
    ) -> Self {
        Self {
            inner: Some(inner),
            decoder: StreamDecoder::new(format),
            renderer,
            record,
            has_started: false,
            is_finishing: false,
            timer: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        }
    }

    /// The rendered events; empty if there is nothing to tell.
    fn render(&mut self, events: &[TextEvent]) -> String {
        let mut out = String::new();
        if !self.has_started && !events.is_empty() {
            self.has_started = true;
            out.push_str(&self.renderer.start());
        }
        for event in events {
            if let TextEvent::Ended { usage, .. } = event {
                self.record.usage(*usage);
            }
            out.push_str(&self.renderer.event(event));
        }
        out
    }

    /// What to tell the client about the next bytes of the backend.
    fn read(&mut self, frame: Option<Result<Frame<Bytes>, ForwardedBodyError>>) -> String {
        let events = match frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => {
                    self.record.bytes(data);
                    self.decoder.push(data)
                }
                None => Vec::new(),
            },
            Some(Err(error)) => {
                self.record.cut(&error);
                self.inner = None;
                vec![TextEvent::Failed(TextError {
                    kind: TextErrorKind::Failed,
                    message: cut_message(&error),
                })]
            }
            None => {
                self.inner = None;
                self.decoder.finish()
            }
        };
        let text = self.render(&events);
        if self.decoder.is_over() {
            self.is_finishing = true;
            self.record.complete();
        }
        if self.inner.is_none() {
            self.record.complete();
        }
        text
    }

    /// The silence after which a comment is sent, or after which the rest of a complete text is dropped: if
    /// a stop string was found, the backend goes on, and dropping the body stops it.
    fn patience(&self) -> Duration {
        match self.is_finishing {
            true => LAST_BYTES,
            false => KEEP_ALIVE,
        }
    }
}

impl Body for TranslatedBody {
    type Data = Bytes;
    type Error = ForwardedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ForwardedBodyError>>> {
        let this = self.get_mut();
        loop {
            let Some(inner) = &mut this.inner else {
                return Poll::Ready(None);
            };
            match Pin::new(inner).poll_frame(cx) {
                Poll::Ready(frame) => {
                    let was_finishing = this.is_finishing;
                    let text = this.read(frame);
                    if !was_finishing {
                        let end = Instant::now() + this.patience();
                        this.timer.as_mut().reset(end);
                    }
                    if !text.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                    }
                }
                Poll::Pending => {
                    std::task::ready!(this.timer.as_mut().poll(cx));
                    if this.is_finishing {
                        this.inner = None;
                        return Poll::Ready(None);
                    }
                    this.timer.as_mut().reset(Instant::now() + KEEP_ALIVE);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
                }
            }
        }
    }
}
