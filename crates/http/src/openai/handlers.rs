//! Answers requests for text and embeddings with jobs of the models of this server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::record::Api;

use super::error::OpenAiError;
use super::parse_embeddings::parse_embeddings;
use super::parse_text::{OpenAiTextRequest, parse_chat, parse_completion};
use super::render::{self, OpenAiTextRenderer, TextEndpoint};
use super::{AppState, models};
use crate::access::Identity;
use crate::inference::{
    FirstEvents, InferenceError, InferenceModel, TextJob, find_model, stream_body,
};
use crate::shared::body_limit::{BodyLimit, read_json_body};
use crate::shared::response::{event_stream, json};
use crate::shared::warnings::with_warnings;

/// `POST /v1/chat/completions`
pub(crate) async fn chat(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, OpenAiError> {
    let parsed = parse_chat(&state.body(request).await?)?;
    state.generate(&caller, TextEndpoint::Chat, parsed).await
}

/// `POST /v1/completions`
pub(crate) async fn completions(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, OpenAiError> {
    let parsed = parse_completion(&state.body(request).await?)?;
    let endpoint = TextEndpoint::Completion;
    state.generate(&caller, endpoint, parsed).await
}

/// `POST /v1/embeddings`
pub(crate) async fn embeddings(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, OpenAiError> {
    let parsed = parse_embeddings(&state.body(request).await?)?;
    let model = state.model(&caller, &parsed.model).await?;
    let answer = model.embed(&parsed.request, &parsed.extra).await?;
    let body = render::embeddings(&parsed.model, &answer, parsed.encoding);
    Ok(json(StatusCode::OK, body))
}

/// The response for a method that the path does not support.
pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!(
        "method {method} not allowed for `{}`; send POST",
        uri.path()
    );
    OpenAiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}

impl AppState {
    async fn body(&self, request: Request) -> Result<Bytes, OpenAiError> {
        let (parts, body) = request.into_parts();
        let limit = BodyLimit::of_flags(self.config.max_body, self.config.body_timeout);
        Ok(read_json_body(&parts.headers, body, limit).await?)
    }

    async fn model(&self, caller: &Identity, name: &str) -> Result<InferenceModel, OpenAiError> {
        let model =
            find_model(&self.models, name).ok_or_else(|| models::not_found(&self.models, name))?;
        Ok(InferenceModel::open(model.jobs(), &caller.account, Api::OpenAi).await?)
    }

    async fn generate(
        &self,
        caller: &Identity,
        endpoint: TextEndpoint,
        parsed: OpenAiTextRequest,
    ) -> Result<Response, OpenAiError> {
        let model = self.model(caller, &parsed.model).await?;
        let job = model.generate(&parsed.request).await?;
        let renderer = OpenAiTextRenderer {
            endpoint,
            id: job.id().to_owned(),
            created: Timestamp::now().as_second(),
            model: parsed.model,
            include_usage: parsed.include_usage,
        };
        if parsed.request.stream {
            streamed(job, renderer).await
        } else {
            whole(job, &renderer).await
        }
    }
}

async fn whole(job: TextJob, renderer: &OpenAiTextRenderer) -> Result<Response, OpenAiError> {
    let warnings = job.warnings();
    let answer = job.whole().await?;
    let response = json(StatusCode::OK, renderer.whole(&answer));
    Ok(with_warnings(response, &warnings))
}

async fn streamed(job: TextJob, renderer: OpenAiTextRenderer) -> Result<Response, OpenAiError> {
    let first = FirstEvents::wait(job).await?;
    let warnings = first.job().warnings();
    let start = renderer.stream_start();
    let body = stream_body(first, start, move |event| renderer.stream_event(event));
    Ok(with_warnings(event_stream(body), &warnings))
}

impl From<InferenceError> for OpenAiError {
    fn from(error: InferenceError) -> Self {
        match error {
            InferenceError::Unsupported(error) => error.into(),
            InferenceError::Refused(refusal) => refusal.into(),
            InferenceError::Failed(error) => error.into(),
        }
    }
}
