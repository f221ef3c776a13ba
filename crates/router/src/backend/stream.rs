//! Reads the streamed answers of backends.

use tidegate_core::text_generation::{TextError, TextErrorKind, TextEvent};
use tidegate_net::{SseEvent, SseParser};

use super::answer::{AnswerDocument, AnswerFormat};
use super::text_filter::{AfterStop, TextFilter};
use super::{cog, openai, tgi, triton};

/// The largest event of a backend. The last event of Cog repeats the whole output.
const MAX_EVENT_SIZE: usize = 32 * 1024 * 1024;

/// Decodes the bytes of a stream to the events of a text.
#[derive(Debug)]
pub struct StreamDecoder {
    parser: SseParser,
    reader: Reader,
    filter: TextFilter,
}

/// The state of the protocol of a backend.
#[derive(Debug)]
enum Reader {
    Completion(openai::CompletionReader),
    Tgi(tgi::TokenReader),
    Triton(triton::OutputReader),
    Cog(cog::PredictionReader),
    /// A backend of this kind has no streams.
    None,
}

impl StreamDecoder {
    /// A decoder for the answer to a call.
    pub fn new(format: &AnswerFormat) -> Self {
        let reader = match format.document {
            AnswerDocument::Completion => Reader::Completion(openai::CompletionReader::default()),
            AnswerDocument::GeneratedText => Reader::Tgi(tgi::TokenReader),
            AnswerDocument::TextOutput => Reader::Triton(triton::OutputReader::default()),
            AnswerDocument::TextPrediction | AnswerDocument::PromptPrediction => {
                Reader::Cog(cog::PredictionReader::new(format.max_tokens))
            }
            AnswerDocument::EmbeddingList
            | AnswerDocument::Vectors
            | AnswerDocument::Prediction
            | AnswerDocument::Envelope
            | AnswerDocument::Json => Reader::None,
        };
        let after_stop = match reader {
            Reader::Completion(_) | Reader::Tgi(_) | Reader::None => AfterStop::ReadToEnd,
            Reader::Triton(_) | Reader::Cog(_) => AfterStop::End,
        };
        Self {
            parser: SseParser::new(MAX_EVENT_SIZE),
            reader,
            filter: TextFilter::new(format.stop.clone(), after_stop),
        }
    }

    /// Adds bytes, and returns the events that are complete now. After the last event, the rest of the
    /// stream is ignored.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<TextEvent> {
        let Self {
            parser,
            reader,
            filter,
        } = self;
        let mut events = Vec::new();
        let parsed = parser.push(bytes, |event| {
            reader.read(event, &mut |event| filter.pass(event, &mut events));
        });
        if let Err(error) = parsed {
            filter.pass(failed(error.to_string()), &mut events);
        }
        events
    }

    /// The events at the end of the stream: none if the text ended before. A stream without its end
    /// marker has failed.
    pub fn finish(&mut self) -> Vec<TextEvent> {
        let Self {
            parser,
            reader,
            filter,
        } = self;
        let mut events = Vec::new();
        let parsed = parser.finish(|event| {
            reader.read(event, &mut |event| filter.pass(event, &mut events));
        });
        if let Err(error) = parsed {
            filter.pass(failed(error.to_string()), &mut events);
        }
        filter.pass(reader.end(), &mut events);
        events
    }

    /// Whether the last event of the text has been returned.
    pub fn is_over(&self) -> bool {
        self.filter.is_over()
    }
}

impl Reader {
    fn read(&mut self, event: SseEvent<'_>, emit: &mut dyn FnMut(TextEvent)) {
        match self {
            Self::Completion(reader) => reader.read(event, emit),
            Self::Tgi(reader) => reader.read(event, emit),
            Self::Triton(reader) => reader.read(event, emit),
            Self::Cog(reader) => reader.read(event, emit),
            Self::None => {}
        }
    }

    /// What the end of the stream means.
    fn end(&self) -> TextEvent {
        match self {
            Self::Triton(reader) => reader.end(),
            Self::Completion(_) | Self::Tgi(_) | Self::Cog(_) => {
                failed("the stream of the backend ended before the text was complete")
            }
            Self::None => failed("the backend sent a stream in place of an answer"),
        }
    }
}

/// The last event of a text that is not complete.
pub(super) fn failed(message: impl Into<String>) -> TextEvent {
    TextEvent::Failed(TextError {
        kind: TextErrorKind::Failed,
        message: message.into(),
    })
}
