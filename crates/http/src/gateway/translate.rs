//! Translates between the API of a client and a backend that speaks another one.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::inference::{InferenceAnswer, InferenceRequest};
use tidegate_core::text_generation::Usage;
use tidegate_router::backend::{
    AnswerFormat, BackendError, BackendErrorKind, answer_events, decode_answer, error_message,
};
use tidegate_router::fleet::BackendKind;
use tidegate_router::forward::{Forwarded, ForwardedBody, PlanError};

use super::error::{ErrorReply, GatewayError};
use super::inference::{AnswerContext, add_headers, sandbox_documents};
use super::record::RequestRecord;
use super::relay_body::cut_message;
use super::reply;
use super::route::{ClientApi, InferenceOperation, InferenceRoute};
use super::translated_body::{StreamRenderer, TranslatedBody};
use crate::openai::error::OpenAiError;
use crate::openai::parse_embeddings::{VectorEncoding, parse_embeddings};
use crate::openai::parse_text::{OpenAiTextRequest, parse_chat, parse_completion};
use crate::openai::render::{self, OpenAiTextRenderer, TextEndpoint};
use crate::shared::response::{event_stream, json};
use crate::workers_ai;
use crate::workers_ai::single_file::SingleFile;

/// The largest answer that is translated as a whole.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Larger answers are translated on a thread of their own.
const LARGE_ANSWER: usize = 1024 * 1024;

/// A request of a client in the terms that backends share.
#[derive(Debug, Clone)]
pub(super) struct TranslatedRequest {
    pub(super) request: InferenceRequest,
    /// The kind of backend that it was parsed for.
    pub(super) kind: BackendKind,
    /// Whether a stream of OpenAI's API ends with the number of tokens.
    include_usage: bool,
    encoding: VectorEncoding,
}

/// The body of a prediction.
#[derive(Deserialize)]
struct PredictionBody {
    #[serde(default)]
    input: Map<String, Value>,
}

impl TranslatedRequest {
    fn new(request: InferenceRequest, kind: BackendKind) -> Self {
        Self {
            request,
            kind,
            include_usage: false,
            encoding: VectorEncoding::Float,
        }
    }

    /// Parses the body of a request for a backend of this kind.
    pub(super) fn parse(
        route: &InferenceRoute,
        kind: BackendKind,
        body: &[u8],
    ) -> Result<Self, PlanError> {
        let text = |parsed: OpenAiTextRequest| Self {
            include_usage: parsed.include_usage,
            ..Self::new(InferenceRequest::Text(parsed.request), kind)
        };
        match &route.operation {
            InferenceOperation::Chat => parse_chat(body).map(text).map_err(openai_error),
            InferenceOperation::Completion => {
                parse_completion(body).map(text).map_err(openai_error)
            }
            InferenceOperation::Embeddings => {
                let parsed = parse_embeddings(body).map_err(openai_error)?;
                Ok(Self {
                    encoding: parsed.encoding,
                    ..Self::new(InferenceRequest::Embeddings(parsed.request), kind)
                })
            }
            InferenceOperation::OtherOpenAi => Err(plan_error(format!(
                "the backends of this model do not have `{}`",
                route.upstream_path
            ))),
            InferenceOperation::Run => workers_ai::parse::parse_run(body, kind == BackendKind::Cog)
                .map(|request| Self::new(request, kind))
                .map_err(|error| plan_error(error.message)),
            InferenceOperation::Prediction(_) => {
                let body: PredictionBody = serde_json::from_slice(body)
                    .map_err(|error| plan_error(format!("invalid prediction: {error}")))?;
                Ok(Self::new(InferenceRequest::Inputs(body.input), kind))
            }
        }
    }

    /// Whether the client reads a text while it is generated.
    fn is_stream(&self) -> bool {
        matches!(&self.request, InferenceRequest::Text(text) if text.stream)
    }
}

fn plan_error(message: String) -> PlanError {
    PlanError {
        message,
        param: None,
    }
}

fn openai_error(error: OpenAiError) -> PlanError {
    PlanError {
        message: error.message,
        param: error.param,
    }
}

/// The response to a client, translated from the answer of a backend.
pub(super) async fn response(
    api: ClientApi,
    format: AnswerFormat,
    forwarded: Forwarded,
    context: AnswerContext,
    mut record: RequestRecord,
) -> Response {
    let log = forwarded.log.clone();
    let mut response =
        if forwarded.head.status.is_success() && format.is_stream(&forwarded.head.headers) {
            event_stream(Body::new(stream_body(
                api, format, forwarded, &context, record,
            )))
        } else {
            match Box::pin(read_whole_response(api, format, forwarded, context)).await {
                Ok((response, usage)) => {
                    record.usage(usage);
                    record.complete();
                    response
                }
                Err(reply) => {
                    record.failed(reply.status, reply.number);
                    reply::error_response(api, &reply)
                }
            }
        };
    add_headers(response.headers_mut(), &log);
    response
}

/// The events for an answer that is not a stream, to a client that was promised one.
pub(super) async fn promised_events(
    api: ClientApi,
    forwarded: Forwarded,
    context: AnswerContext,
    mut record: RequestRecord,
) -> Bytes {
    let kind = forwarded.log.kind.unwrap_or(BackendKind::OpenAi);
    let status = forwarded.head.status;
    let answer = match forwarded.answer.clone() {
        Some(format) => read_answer(format, forwarded).await,
        None => match read_whole(forwarded.body).await {
            Ok(body) if !status.is_success() => {
                Err(backend_reply(&error_message(kind, status, &body)))
            }
            Ok(_) => Err(ErrorReply::cut(
                "the backend answered without a stream".to_owned(),
            )),
            Err(error) => Err(error),
        },
    };
    match answer {
        Ok(answer) => match answer_events(answer) {
            Some(events) => {
                record.complete();
                let renderer = stream_renderer(api, &context);
                let events = events.iter().map(|event| renderer.event(event));
                let text: String = std::iter::once(renderer.start()).chain(events).collect();
                text.into()
            }
            None => reply::error_event(
                api,
                &ErrorReply::cut("the model answered with something that is no text".to_owned()),
            ),
        },
        Err(error) => {
            record.failed(StatusCode::OK, error.number);
            reply::error_event(api, &error)
        }
    }
}

/// The body of a stream, translated.
pub(super) fn stream_body(
    api: ClientApi,
    format: AnswerFormat,
    forwarded: Forwarded,
    context: &AnswerContext,
    record: RequestRecord,
) -> TranslatedBody {
    TranslatedBody::new(
        forwarded.body,
        &format,
        stream_renderer(api, context),
        record,
    )
}

fn stream_renderer(api: ClientApi, context: &AnswerContext) -> StreamRenderer {
    match api {
        ClientApi::OpenAi => StreamRenderer::OpenAi(Box::new(text_renderer(context))),
        ClientApi::WorkersAi | ClientApi::Cog => StreamRenderer::WorkersAi,
    }
}

fn text_renderer(context: &AnswerContext) -> OpenAiTextRenderer {
    OpenAiTextRenderer {
        endpoint: match context.operation {
            InferenceOperation::Completion => TextEndpoint::Completion,
            _ => TextEndpoint::Chat,
        },
        id: context.request_id.clone(),
        created: Timestamp::now().as_second(),
        model: context.model.clone(),
        include_usage: context
            .translated
            .as_ref()
            .is_some_and(|request| request.include_usage),
    }
}

/// Reads an answer, and renders it for the client.
async fn read_whole_response(
    api: ClientApi,
    format: AnswerFormat,
    forwarded: Forwarded,
    context: AnswerContext,
) -> Result<(Response, Option<Usage>), ErrorReply> {
    let Forwarded { head, body, .. } = forwarded;
    let body = read_whole(body).await?;
    let rendered = beside_others(body.len(), move || {
        let answer = decode_answer(&format, head.status, &head.headers, &body)?;
        let usage = usage_of(&answer);
        Ok((whole_response(api, answer, &context), usage))
    });
    rendered.await.map_err(|error| backend_reply(&error))
}

async fn read_answer(
    format: AnswerFormat,
    forwarded: Forwarded,
) -> Result<InferenceAnswer, ErrorReply> {
    let Forwarded { head, body, .. } = forwarded;
    let body = read_whole(body).await?;
    let answer = beside_others(body.len(), move || {
        decode_answer(&format, head.status, &head.headers, &body)
    });
    answer.await.map_err(|error| backend_reply(&error))
}

/// Runs `work` on an answer of this size. Large ones take long, and the other connections of this thread do
/// not wait for them.
async fn beside_others<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= LARGE_ANSWER {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime has ended, and the program with it.
            Err(_) => std::future::pending().await,
        },
    }
}

async fn read_whole(mut body: ForwardedBody) -> Result<Bytes, ErrorReply> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ErrorReply::cut(cut_message(&error)))?;
        if let Ok(data) = frame.into_data() {
            if whole.len() + data.len() > MAX_ANSWER {
                return Err(ErrorReply::cut(format!(
                    "the answer of the backend has more than {MAX_ANSWER} bytes"
                )));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// How clients see the error of a backend.
fn backend_reply(error: &BackendError) -> ErrorReply {
    let mut reply = ErrorReply::cut(error.message.clone());
    reply.status = match error.kind {
        BackendErrorKind::Status => error.status,
        BackendErrorKind::ModelFailed | BackendErrorKind::Canceled => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        BackendErrorKind::InvalidAnswer => StatusCode::BAD_GATEWAY,
    };
    if reply.status.is_client_error() {
        reply.kind = "invalid_request_error";
        reply.number = 5004;
        reply.code = None;
        reply.param = error.param.clone();
    }
    reply
}

/// A whole answer, for a client that may have asked for a stream.
fn whole_response(api: ClientApi, answer: InferenceAnswer, context: &AnswerContext) -> Response {
    let is_stream = context
        .translated
        .as_ref()
        .is_some_and(TranslatedRequest::is_stream);
    if is_stream && let InferenceAnswer::Text(_) = &answer {
        let renderer = stream_renderer(api, context);
        let events = answer_events(answer).into_iter().flatten();
        let text: String = std::iter::once(renderer.start())
            .chain(events.map(|event| renderer.event(&event)))
            .collect();
        return event_stream(Body::from(text));
    }
    match api {
        ClientApi::OpenAi => openai_whole(&answer, context),
        ClientApi::WorkersAi => workers_ai_whole(&answer),
        ClientApi::Cog => json(StatusCode::OK, prediction(answer, context)),
    }
}

/// One file is the body, as `serve` answers it.
fn workers_ai_whole(answer: &InferenceAnswer) -> Response {
    let file = match answer {
        InferenceAnswer::Output(output) => SingleFile::of(output),
        InferenceAnswer::Text(_) | InferenceAnswer::Embeddings(_) => None,
    };
    match file {
        Some(file) => {
            let mut response = file.into_response();
            sandbox_documents(response.headers_mut());
            response
        }
        None => json(StatusCode::OK, workers_ai::render::render_answer(answer)),
    }
}

fn usage_of(answer: &InferenceAnswer) -> Option<Usage> {
    match answer {
        InferenceAnswer::Text(text) => text.usage,
        InferenceAnswer::Embeddings(embeddings) => embeddings.usage,
        InferenceAnswer::Output(_) => None,
    }
}

fn openai_whole(answer: &InferenceAnswer, context: &AnswerContext) -> Response {
    match answer {
        InferenceAnswer::Text(text) => json(StatusCode::OK, text_renderer(context).whole(text)),
        InferenceAnswer::Embeddings(embeddings) => {
            let encoding = context
                .translated
                .as_ref()
                .map_or(VectorEncoding::Float, |request| request.encoding);
            let body = render::embeddings(&context.model, embeddings, encoding);
            json(StatusCode::OK, body)
        }
        InferenceAnswer::Output(_) => {
            let reply = GatewayError::InvalidBody(
                "the model answered with something that is neither text nor embeddings".to_owned(),
            );
            reply::error_response(ClientApi::OpenAi, &reply.reply())
        }
    }
}

/// A prediction of Cog's API.
#[derive(Serialize)]
struct Prediction<'a> {
    id: &'a str,
    status: &'static str,
    output: Value,
}

fn prediction(answer: InferenceAnswer, context: &AnswerContext) -> Bytes {
    let output = match answer {
        InferenceAnswer::Text(text) => Value::String(text.text),
        InferenceAnswer::Embeddings(embeddings) => {
            serde_json::to_value(embeddings.vectors).unwrap_or_default()
        }
        InferenceAnswer::Output(value) => value,
    };
    let prediction = Prediction {
        id: &context.request_id,
        status: "succeeded",
        output,
    };
    serde_json::to_vec(&prediction)
        .expect("predictions have string keys")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_large_answer_does_not_keep_its_thread_from_other_work() {
        let (done, other_is_done) = std::sync::mpsc::channel();
        let large = beside_others(LARGE_ANSWER + 1, move || other_is_done.recv());
        let (result, ()) = tokio::join!(large, async { done.send("done").unwrap() });
        assert_eq!(result, Ok("done"));
        assert_eq!(beside_others(LARGE_ANSWER, || 1).await, 1);
    }
}
