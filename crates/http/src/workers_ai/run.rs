//! `POST …/ai/run/{model}`: runs a model and answers with its result.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_core::inference::{InferenceAnswer, InferenceRequest};
use tidegate_core::record::Api;
use tidegate_core::text_generation::TextRequest;
use tidegate_service::ServedModel;

use super::AppState;
use super::batch;
use super::error::WorkersAiError;
use super::parse::{extra_embedding_inputs, parse_run_for};
use super::render::{render_answer, stream_event, whole_stream};
use super::single_file::SingleFile;
use crate::access::Identity;
use crate::inference::{
    FirstEvents, InferenceError, InferenceModel, find_model, output_value, stream_body,
};
use crate::shared::body_limit::{BodyLimit, is_json, read_body, read_json_body};
use crate::shared::response::{event_stream, json};
use crate::shared::warnings::with_warnings;

/// The parameters of the path. An account was compared with that of the token.
#[derive(Deserialize)]
pub(super) struct RunPath {
    model: String,
}

/// `POST …/ai/run/{model}`. The name of the model may have slashes, as they are or escaped.
pub(super) async fn run(
    State(state): State<Arc<AppState>>,
    Path(RunPath { model: name }): Path<RunPath>,
    RawQuery(query): RawQuery,
    caller: Identity,
    request: Request,
) -> Result<Response, WorkersAiError> {
    let served =
        find_model(&state.models, &name).ok_or_else(|| WorkersAiError::model_not_found(&name))?;
    let (parts, body) = request.into_parts();
    if is_flag_set(query.as_deref().unwrap_or_default(), "queueRequest") {
        let body = state.json_body(&parts.headers, body).await?;
        return batch::queue_or_poll(&state, &caller, &served, &name, &body).await;
    }
    if let Some(media_type) = binary_type(&parts.headers) {
        let model = open(&served, &caller).await?;
        let body = state.binary_body(body).await?;
        return run_file(&model, &media_type, &body).await;
    }
    let body = state.json_body(&parts.headers, body).await?;
    if is_untyped(&parts.headers) && !body.is_empty() && !is_object(&body) {
        let model = open(&served, &caller).await?;
        return run_file(&model, "application/octet-stream", &body).await;
    }
    if batch::is_poll(&body) {
        return batch::queue_or_poll(&state, &caller, &served, &name, &body).await;
    }
    let model = open(&served, &caller).await?;
    match parse_run_for(model.interface(), &body)? {
        InferenceRequest::Text(request) => generate(&model, &request).await,
        InferenceRequest::Embeddings(request) => {
            let embeddings = model
                .embed(&request, &extra_embedding_inputs(&body)?)
                .await?;
            let answer = InferenceAnswer::Embeddings(embeddings);
            Ok(json(StatusCode::OK, render_answer(&answer)))
        }
        InferenceRequest::Inputs(input) => run_inputs(&model, input).await,
    }
}

pub(super) async fn open(
    served: &ServedModel,
    caller: &Identity,
) -> Result<InferenceModel, WorkersAiError> {
    Ok(InferenceModel::open(served.jobs(), &caller.account, Api::WorkersAi).await?)
}

impl AppState {
    async fn json_body(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, WorkersAiError> {
        if is_untyped(headers) {
            return self.binary_body(body).await;
        }
        Ok(read_json_body(headers, body, self.body_limit()).await?)
    }

    async fn binary_body(&self, body: Body) -> Result<Bytes, WorkersAiError> {
        Ok(read_body(body, self.body_limit()).await?)
    }

    fn body_limit(&self) -> BodyLimit {
        BodyLimit::of_flags(self.config.max_body, self.config.body_timeout)
    }
}

async fn generate(
    model: &InferenceModel,
    request: &TextRequest,
) -> Result<Response, WorkersAiError> {
    // What such a model returns is known at its end only.
    let is_read_at_end = !(request.stream && model.streams());
    if is_read_at_end && !model.interface().declares_text() {
        let (answer, warnings) = model.answer_prompt(request).await?;
        let response = match answer {
            InferenceAnswer::Text(text) if request.stream => {
                event_stream(whole_stream(text).into())
            }
            answer => json(StatusCode::OK, render_answer(&answer)),
        };
        return Ok(with_warnings(response, &warnings));
    }
    let job = model.generate(request).await?;
    if request.stream {
        let first = FirstEvents::wait(job).await?;
        let warnings = first.job().warnings();
        let body = stream_body(first, String::new(), stream_event);
        return Ok(with_warnings(event_stream(body), &warnings));
    }
    let warnings = job.warnings();
    let answer = InferenceAnswer::Text(job.whole().await?);
    let response = json(StatusCode::OK, render_answer(&answer));
    Ok(with_warnings(response, &warnings))
}

async fn run_inputs(
    model: &InferenceModel,
    input: Map<String, Value>,
) -> Result<Response, WorkersAiError> {
    let over = model.run(input).await?;
    let output = output_value(&over);
    let file = Some(&output)
        .filter(|_| model.interface().returns_files())
        .and_then(SingleFile::of);
    let response = match file {
        Some(file) => file.into_response(),
        None => json(
            StatusCode::OK,
            render_answer(&InferenceAnswer::Output(output)),
        ),
    };
    Ok(with_warnings(response, &over.warnings))
}

/// A body that is a file becomes the input of a model that has exactly one input for files.
async fn run_file(
    model: &InferenceModel,
    media_type: &str,
    body: &[u8],
) -> Result<Response, WorkersAiError> {
    let Some(name) = model.interface().file_input() else {
        return Err(WorkersAiError::invalid(
            "the body is a file, and the model does not have exactly one file input; send its inputs as JSON with `content-type: application/json`",
        ));
    };
    let uri = format!("data:{media_type};base64,{}", STANDARD.encode(body));
    run_inputs(
        model,
        Map::from_iter([(name.to_owned(), Value::String(uri))]),
    )
    .await
}

/// The media type of a body that is not JSON; `None` for JSON and for a request without a type.
fn binary_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?;
    if is_json(value.as_bytes()) {
        return None;
    }
    let essence = essence(value);
    // Web forms and plain text are mistakes, and JSON errors describe them.
    let is_binary = ["image/", "audio/", "video/", "application/octet-stream"]
        .iter()
        .any(|prefix| essence.starts_with(prefix));
    is_binary.then_some(essence)
}

/// Whether the client has not chosen a type: `fetch` sends none for bytes, and curl the one of web forms,
/// also for JSON and files.
fn is_untyped(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).map(essence);
    value.is_none_or(|essence| essence == "application/x-www-form-urlencoded")
}

/// A media type without its parameters, in lower case.
fn essence(value: &HeaderValue) -> String {
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Whether a body begins like a JSON object.
fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

/// Whether a query has `name` or `name=true`.
fn is_flag_set(query: &str, name: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes())
        .any(|(key, value)| key == name && matches!(value.as_ref(), "" | "true" | "1"))
}

impl From<InferenceError> for WorkersAiError {
    fn from(error: InferenceError) -> Self {
        match error {
            InferenceError::Unsupported(error) => error.into(),
            InferenceError::Refused(refusal) => refusal.into(),
            InferenceError::Failed(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_the_query() {
        assert!(is_flag_set("a=1&queueRequest=true", "queueRequest"));
        assert!(!is_flag_set("queueRequest=false", "queueRequest"));
        assert!(!is_flag_set("", "queueRequest"));
    }
}
