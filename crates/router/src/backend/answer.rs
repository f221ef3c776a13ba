//! Reads the whole answers of backends.

use hyper::StatusCode;
use hyper::header::HeaderMap;
use tidegate_core::inference::{GeneratedText, InferenceAnswer};
use tidegate_core::text_generation::{TextEvent, TextRequest};

use super::error::{BackendError, error_message};
use super::text_filter::cut_at_stop;
use super::{class, cog, openai, tei, tgi, tidegate, triton};
use crate::fleet::BackendKind;

/// How the answer to a call is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerFormat {
    pub(super) kind: BackendKind,
    pub(super) document: AnswerDocument,
    /// The stop strings that the backend does not enforce, or not as clients expect.
    pub(super) stop: Vec<String>,
    /// The most tokens of a text.
    pub(super) max_tokens: Option<u64>,
}

/// The document that an answer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerDocument {
    /// OpenAI: a chat completion or a completion.
    Completion,
    /// OpenAI: a list of embeddings.
    EmbeddingList,
    /// TGI: `generated_text`.
    GeneratedText,
    /// TEI: a list of vectors.
    Vectors,
    /// Triton: `text_output`.
    TextOutput,
    /// Cog: a prediction with a text as output.
    TextPrediction,
    /// Cog: a prediction with a text or anything else as output.
    PromptPrediction,
    /// Cog: a prediction.
    Prediction,
    /// Workers AI: an envelope.
    Envelope,
    /// Any JSON.
    Json,
}

impl AnswerFormat {
    pub(super) fn new(kind: BackendKind, document: AnswerDocument) -> Self {
        Self {
            kind,
            document,
            stop: Vec::new(),
            max_tokens: None,
        }
    }

    /// The format of a text whose stop strings are enforced here.
    pub(super) fn text(kind: BackendKind, document: AnswerDocument, request: &TextRequest) -> Self {
        Self {
            stop: request.stop.clone(),
            max_tokens: request.parameters.max_tokens,
            ..Self::new(kind, document)
        }
    }

    /// Also accepts an output that is no text, of backends that do not say what a prompt asks them for.
    pub fn or_any_output(self) -> Self {
        let document = match self.document {
            AnswerDocument::TextPrediction => AnswerDocument::PromptPrediction,
            other => other,
        };
        Self { document, ..self }
    }

    /// Whether a response with these headers is read with a [`StreamDecoder`](super::StreamDecoder). A
    /// backend may answer a request for a stream with a whole answer.
    pub fn is_stream(&self, headers: &HeaderMap) -> bool {
        class::is_event_stream(headers)
    }
}

/// Reads a whole answer.
pub fn decode_answer(
    format: &AnswerFormat,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<InferenceAnswer, BackendError> {
    if !status.is_success() {
        return Err(error_message(format.kind, status, body));
    }
    let text = |answer: GeneratedText| InferenceAnswer::Text(cut_at_stop(answer, &format.stop));
    let answer = match format.document {
        AnswerDocument::Completion => openai::decode_text(body).map(text),
        AnswerDocument::EmbeddingList => openai::decode_embeddings(body),
        AnswerDocument::GeneratedText => tgi::decode_text(headers, body).map(text),
        AnswerDocument::Vectors => tei::decode_vectors(headers, body),
        AnswerDocument::TextOutput => triton::decode_text(body).map(text),
        AnswerDocument::TextPrediction => cog::decode_text(body, format.max_tokens).map(text),
        AnswerDocument::PromptPrediction => {
            cog::decode_any(body, format.max_tokens).map(|answer| match answer {
                InferenceAnswer::Text(answer) => text(answer),
                other => other,
            })
        }
        AnswerDocument::Prediction => cog::decode_output(body),
        AnswerDocument::Envelope => tidegate::decode_envelope(body),
        AnswerDocument::Json => parse(format.kind, body).map(InferenceAnswer::Output),
    };
    answer.map_err(|mut error| {
        error.status = status;
        error
    })
}

/// Parses the body of an answer.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(
    kind: BackendKind,
    body: &'a [u8],
) -> Result<T, BackendError> {
    serde_json::from_slice(body).map_err(|error| BackendError::invalid(kind, error))
}

/// A whole answer as the events of a stream, for a client that asked for one; `None` if it is no text.
pub fn answer_events(answer: InferenceAnswer) -> Option<[TextEvent; 2]> {
    match answer {
        InferenceAnswer::Text(generated) => Some([
            TextEvent::Text(generated.text),
            TextEvent::Ended {
                finish_reason: generated.finish_reason,
                usage: generated.usage,
            },
        ]),
        InferenceAnswer::Embeddings(_) | InferenceAnswer::Output(_) => None,
    }
}
