//! Text Embeddings Inference.
//!
//! Inputs with `query` and `texts` are reranked, and inputs with `inputs` are classified.

use hyper::Method;
use hyper::header::HeaderMap;
use serde::Serialize;
use tidegate_core::inference::{Embeddings, InferenceAnswer, InferenceRequest};
use tidegate_core::text_generation::Usage;

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::BackendError;
use super::tgi::header_number;
use super::{BackendCall, NotSupported, json_call};
use crate::fleet::BackendKind;

const KIND: BackendKind = BackendKind::Tei;
/// The header with the number of tokens of all texts.
const COMPUTE_TOKENS: &str = "x-compute-tokens";

pub(super) fn encode(request: &InferenceRequest) -> Result<BackendCall, NotSupported> {
    let not_supported = |reason: &str| NotSupported {
        kind: KIND,
        reason: reason.to_owned(),
    };
    let inputs = match request {
        InferenceRequest::Text(_) => return Err(not_supported("generates no text")),
        InferenceRequest::Embeddings(request) => {
            let body = EmbedBody {
                inputs: &request.texts,
                dimensions: request.dimensions,
            };
            let answer = AnswerFormat::new(KIND, AnswerDocument::Vectors);
            return Ok(json_call(Method::POST, "/embed", &body, answer));
        }
        InferenceRequest::Inputs(inputs) => inputs,
    };
    let has = |name: &str| inputs.contains_key(name);
    let path = if has("query") && has("texts") {
        "/rerank"
    } else if has("inputs") {
        "/predict"
    } else {
        return Err(not_supported("takes `query` with `texts`, or `inputs`"));
    };
    let answer = AnswerFormat::new(KIND, AnswerDocument::Json);
    Ok(json_call(Method::POST, path, inputs, answer))
}

#[derive(Serialize)]
struct EmbedBody<'a> {
    inputs: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

pub(super) fn decode_vectors(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<InferenceAnswer, BackendError> {
    let tokens = header_number(headers, COMPUTE_TOKENS);
    Ok(InferenceAnswer::Embeddings(Embeddings {
        vectors: parse(KIND, body)?,
        usage: tokens.map(|tokens| Usage::new(tokens, 0)),
    }))
}
