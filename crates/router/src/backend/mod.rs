//! Adapters between the shared types of `core` and the protocols of the backends: one module per kind.
//!
//! [`encode`] writes a request for a backend, [`decode_answer`] and [`StreamDecoder`] read its answer,
//! [`classify`] judges the head of a response, and [`cancel_call`] stops the work for a client that has
//! gone. Nothing here does I/O: `forward` sends the calls. Requests whose API is also the one of the
//! backend are not translated: see [`passes_through`].

mod answer;
mod class;
mod cog;
mod error;
mod openai;
mod stream;
mod tei;
#[cfg(test)]
mod tests;
mod text_filter;
mod tgi;
mod tidegate;
mod triton;

use bytes::Bytes;
use hyper::header::{ACCEPT, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use tidegate_core::inference::InferenceRequest;

use crate::fleet::BackendKind;
use crate::permits::RequestId;

pub use answer::{AnswerFormat, answer_events, decode_answer};
pub use class::{ResponseClass, classify};
pub use error::{BackendError, BackendErrorKind, error_message};
pub use stream::StreamDecoder;

/// A request as a backend understands it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendCall {
    /// The method.
    pub method: Method,
    /// The path with its query, without the path of the endpoint's URL.
    pub path: String,
    /// The type of the body; `None` if there is no body.
    pub content_type: Option<&'static str>,
    /// Other headers that the protocol needs.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// How the answer is read.
    pub answer: AnswerFormat,
}

/// What a call needs besides the request of the client.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    /// What the backend calls the model.
    pub upstream_model: &'a str,
    /// The identity of the request.
    pub request_id: RequestId,
}

/// A backend cannot do what a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the backend of this model has the kind `{}`, which {reason}", kind.name())]
pub struct NotSupported {
    /// The kind of the backend.
    pub kind: BackendKind,
    /// What it cannot do, as the end of a sentence.
    pub reason: String,
}

/// The call that asks a backend for what a client requested.
pub fn encode(
    kind: BackendKind,
    request: &InferenceRequest,
    context: &CallContext<'_>,
) -> Result<BackendCall, NotSupported> {
    match kind {
        BackendKind::Cog => cog::encode(request, context),
        BackendKind::OpenAi => openai::encode(kind, request, context),
        BackendKind::Tgi => tgi::encode(request, context),
        BackendKind::Tei => tei::encode(request),
        BackendKind::Triton => triton::encode(request, context),
        BackendKind::Tidegate => tidegate::encode(request, context),
    }
}

/// The call that stops the work on a request, for kinds that do not stop when the connection is closed
/// and have such a call. `id` is what the backend calls the request. Its answer says nothing about the
/// request.
pub fn cancel_call(kind: BackendKind, id: &str) -> Option<BackendCall> {
    match kind {
        BackendKind::Cog => Some(cog::cancel(id)),
        BackendKind::OpenAi
        | BackendKind::Tgi
        | BackendKind::Tei
        | BackendKind::Triton
        | BackendKind::Tidegate => None,
    }
}

/// The call to repeat at once to the same backend because its model cannot stream: a Cog server answers
/// 406 then. The answer to it is a whole one.
pub fn call_without_stream(
    kind: BackendKind,
    call: &BackendCall,
    status: StatusCode,
) -> Option<BackendCall> {
    let asked = call.headers.iter().any(|(name, _)| name == ACCEPT);
    if kind != BackendKind::Cog || status != StatusCode::NOT_ACCEPTABLE || !asked {
        return None;
    }
    let mut call = call.clone();
    call.headers.retain(|(name, _)| name != ACCEPT);
    Some(call)
}

/// Whether a backend of this kind has this path of OpenAI's API itself, so that requests and answers
/// pass unchanged.
pub fn passes_through(kind: BackendKind, api_path: &str) -> bool {
    match kind {
        BackendKind::OpenAi | BackendKind::Tidegate => api_path.starts_with("/v1/"),
        BackendKind::Tgi => matches!(api_path, "/v1/chat/completions" | "/v1/completions"),
        BackendKind::Tei => api_path == "/v1/embeddings",
        BackendKind::Cog | BackendKind::Triton => false,
    }
}

/// The path at which a backend of this kind takes a file as the input of a model, if it does.
pub fn run_path(kind: BackendKind, model: &str) -> Option<String> {
    (kind == BackendKind::Tidegate).then(|| tidegate::run_path(model))
}

/// A call with a JSON body.
fn json_call(
    method: Method,
    path: impl Into<String>,
    body: &impl Serialize,
    answer: AnswerFormat,
) -> BackendCall {
    let body = serde_json::to_vec(body).expect("the bodies have string keys and finite numbers");
    BackendCall {
        method,
        path: path.into(),
        content_type: Some("application/json"),
        headers: Vec::new(),
        body: Bytes::from(body),
        answer,
    }
}

const PATH_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'@');
const PATH: &AsciiSet = &PATH_SEGMENT.remove(b'/');

/// A text as one segment of a path.
fn path_segment(text: &str) -> String {
    utf8_percent_encode(text, PATH_SEGMENT).to_string()
}

/// A text as the end of a path; its slashes separate segments.
fn path_end(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}
