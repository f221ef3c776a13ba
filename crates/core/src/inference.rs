//! A request to a model and its answer, in the terms that all APIs and backends share.
//!
//! Each API parses its requests to an [`InferenceRequest`] and renders an [`InferenceAnswer`]; each
//! model and backend is called with the first and produces the second. Text that is read while it is
//! generated is a sequence of [`TextEvent`](crate::text_generation::TextEvent)s instead.

use serde_json::{Map, Value};

use crate::text_generation::{FinishReason, TextRequest, Usage};

/// What a client asks a model for.
#[derive(Debug, Clone, PartialEq)]
pub enum InferenceRequest {
    /// A text that answers a conversation or continues a prompt.
    Text(TextRequest),
    /// The embeddings of texts.
    Embeddings(EmbeddingRequest),
    /// Anything else: the inputs of the model by name.
    Inputs(Map<String, Value>),
}

/// A request for the embeddings of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// The texts. The answer has one vector for each, in this order.
    pub texts: Vec<String>,
    /// The length of the vectors, if the client chooses it.
    pub dimensions: Option<u32>,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub enum InferenceAnswer {
    /// A generated text.
    Text(GeneratedText),
    /// Embeddings.
    Embeddings(Embeddings),
    /// The output of the model as it is.
    Output(Value),
}

/// A generated text that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedText {
    /// The text.
    pub text: String,
    /// Why it ends.
    pub finish_reason: FinishReason,
    /// The number of tokens, if it is known.
    pub usage: Option<Usage>,
}

/// The embeddings of several texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Embeddings {
    /// One vector for each text.
    pub vectors: Vec<Vec<f32>>,
    /// The number of tokens, if it is known.
    pub usage: Option<Usage>,
}
