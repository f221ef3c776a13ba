//! Another tidegate: texts and embeddings through its OpenAI API, other inputs through its Workers AI
//! API.

use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use tidegate_core::inference::{InferenceAnswer, InferenceRequest};

use super::answer::{AnswerDocument, AnswerFormat, parse};
use super::error::{BackendError, in_band};
use super::{BackendCall, CallContext, NotSupported, json_call, openai, path_end};
use crate::fleet::BackendKind;

const KIND: BackendKind = BackendKind::Tidegate;
/// The path without an account: it is that of the endpoint's token, whose name the router does not know.
const RUN: &str = "/ai/run/";

pub(super) fn encode(
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    let InferenceRequest::Inputs(inputs) = request else {
        return openai::encode(KIND, request, context);
    };
    let path = run_path(context.upstream_model);
    let answer = AnswerFormat::new(KIND, AnswerDocument::Envelope);
    Ok(json_call(Method::POST, path, inputs, answer))
}

/// The path that runs a model.
pub(super) fn run_path(model: &str) -> String {
    format!("{RUN}{}", path_end(model))
}

#[derive(Deserialize)]
struct Envelope {
    success: bool,
    #[serde(default)]
    result: Value,
}

pub(super) fn decode_envelope(body: &[u8]) -> Result<InferenceAnswer, BackendError> {
    let envelope: Envelope = parse(KIND, body)?;
    if !envelope.success {
        return Err(in_band(&parse(KIND, body)?));
    }
    Ok(InferenceAnswer::Output(envelope.result))
}
