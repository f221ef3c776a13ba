//! `/v2/{endpoint}/openai/…`: requests of OpenAI's API become jobs of a worker that supports it.
//!
//! The worker gets `{"openai_route": "/v1/…", "openai_input": {…}}` as its input, which Runpod's own
//! workers for language models read. Such a job cannot be looked up later: it is canceled when its
//! client disconnects, and it is not stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_service::{Job, ReadPosition, ResponseMode, Snapshot, Submission, Submitted};

use super::client_request::{ClientRequest, EndpointAccess};
use super::clients::MAX_RUNSYNC;
use super::limits::RequestKind;
use super::render;
use super::reply::ApiError;
use super::wire::JobRequest;
use crate::access::Identity;
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::parse_object;
use crate::shared::response::json;

/// The prefix of a server-sent event.
const DATA: &str = "data: ";
/// The last event of a stream.
const DONE: &str = "data: [DONE]\n\n";

/// Forwards a request of any method as a job.
pub(super) async fn forward(request: ClientRequest, body: Body) -> Result<Response, ForwardError> {
    let access = request.access_endpoint(RequestKind::OpenAi)?;
    let body = request.app.body(body, MAX_RUNSYNC).await?;
    let asked: BTreeMap<Cow<'_, str>, &RawValue> = parse_object(&body)
        .map_err(ApiError::from)?
        .unwrap_or_default();
    let streams = asked
        .get("stream")
        .is_some_and(|stream| stream.get() == "true");
    let envelope = envelope(&request.route, &asked);
    let job = request.attach(access, &envelope).await?;
    Ok(if streams {
        stream_response(job)
    } else {
        single_response(job).await
    })
}

#[derive(Serialize)]
struct OpenAiRun<'a> {
    input: OpenAiInput<'a>,
}

#[derive(Serialize)]
struct OpenAiInput<'a> {
    openai_input: &'a BTreeMap<Cow<'a, str>, &'a RawValue>,
    openai_route: String,
}

fn envelope(route: &str, asked: &BTreeMap<Cow<'_, str>, &RawValue>) -> Bytes {
    let input = OpenAiInput {
        openai_input: asked,
        openai_route: format!("/{route}"),
    };
    serde_json::to_vec(&OpenAiRun { input })
        .expect("the keys are strings")
        .into()
}

/// A job that is canceled when its client disconnects.
struct AttachedJob {
    access: EndpointAccess,
    caller: Identity,
    job: Arc<Job>,
}

impl Drop for AttachedJob {
    fn drop(&mut self) {
        // Has no effect on a job that has ended, which is the usual case.
        self.access
            .jobs
            .request_stop(&self.caller.account, self.job.id());
    }
}

impl ClientRequest {
    async fn attach(
        self,
        access: EndpointAccess,
        envelope: &Bytes,
    ) -> Result<AttachedJob, ApiError> {
        let submission = access.submission(
            &self.caller.account,
            JobRequest::read(envelope)?,
            &self.headers,
        )?;
        let submission = Submission {
            response_mode: ResponseMode::Wait,
            ..submission
        };
        let job = match access.jobs.submit(submission).await? {
            Submitted::New(ticket) => ticket.detach(),
            Submitted::Running(job) | Submitted::Ended(job) => job,
        };
        Ok(AttachedJob {
            access,
            caller: self.caller,
            job,
        })
    }
}

/// The worker's output; a list if it streamed several parts.
async fn single_response(attached: AttachedJob) -> Response {
    let job = &attached.job;
    job.ended().await;
    let over = job.snapshot_without_output();
    if let Some(error) = render::failure(&over) {
        return error_response(failure_status(&over), &error);
    }
    let mut values = job.progress(ReadPosition::default()).await.outputs;
    match values.pop() {
        None => json(StatusCode::OK, Bytes::from_static(b"null")),
        Some(value) if values.is_empty() => json(worker_status(&value), value),
        Some(last) => {
            let all: Vec<Bytes> = values.into_iter().chain([last]).collect();
            json(
                StatusCode::OK,
                [&b"["[..], &all.join(&b","[..]), b"]"].concat().into(),
            )
        }
    }
}

/// The worker's output as a stream of server-sent events.
fn stream_response(job: AttachedJob) -> Response {
    let stream = Some(OpenAiStream {
        job,
        read: 0,
        done: false,
    });
    let mut response = Response::new(Body::from_stream(unfold(stream, |stream| async move {
        stream?.next().await
    })));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

struct OpenAiStream {
    job: AttachedJob,
    read: usize,
    /// Whether the worker itself sent the last event.
    done: bool,
}

impl OpenAiStream {
    /// The next events, and the rest of the stream.
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Option<Self>)> {
        let progress = self
            .job
            .job
            .progress(ReadPosition {
                outputs: self.read,
                logs: usize::MAX,
            })
            .await;
        self.read += progress.outputs.len();
        let mut text: String = progress.outputs.iter().map(events).collect();
        self.done |= text.ends_with(DONE);
        if !progress.ended {
            return Some((Ok(text.into()), Some(self)));
        }
        match render::failure(&self.job.job.snapshot_without_output()) {
            Some(error) => text.push_str(&event(&error_body(
                &error,
                StatusCode::INTERNAL_SERVER_ERROR,
            ))),
            None if !self.done => text.push_str(DONE),
            None => {}
        }
        Some((Ok(text.into()), None))
    }
}

/// A part of the output as events: unchanged if the worker formatted them, else one event per value.
fn events(part: &Bytes) -> String {
    match serde_json::from_slice(part).unwrap_or_default() {
        Value::Array(values) => values.iter().map(event).collect(),
        value => event(&value),
    }
}

fn event(value: &(impl Serialize + ?Sized)) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    match value.as_str().filter(|text| text.starts_with(DATA)) {
        Some(text) => format!("{}\n\n", text.trim_end_matches('\n')),
        None => format!("{DATA}{value}\n\n"),
    }
}

/// The status of a value by which a worker reports an error of the request.
fn worker_status(value: &Bytes) -> StatusCode {
    #[derive(Deserialize)]
    struct WorkerError<'a> {
        #[serde(borrow)]
        object: Cow<'a, str>,
        code: u16,
    }
    match serde_json::from_slice::<WorkerError<'_>>(value) {
        Ok(WorkerError {
            object,
            code: code @ 400..600,
        }) if object == "error" => StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST),
        Ok(_) | Err(_) => StatusCode::OK,
    }
}

fn failure_status(job: &Snapshot) -> StatusCode {
    match render::status(job) {
        "TIMED_OUT" => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// An error in the format of OpenAI's API.
pub(super) struct ForwardError(ApiError);

impl From<ApiError> for ForwardError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ForwardError {
    fn into_response(self) -> Response {
        let (status, error) = (self.0.status(), self.0.to_string());
        self.0.annotate(error_response(status, &error))
    }
}

#[derive(Serialize)]
struct ForwardErrorBody<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<()>,
    code: u16,
}

fn error_body(message: &str, status: StatusCode) -> ForwardErrorBody<'_> {
    let r#type = if status.is_client_error() {
        "invalid_request_error"
    } else {
        "server_error"
    };
    ForwardErrorBody {
        error: Error {
            message,
            r#type,
            param: None,
            code: status.as_u16(),
        },
    }
}

fn error_response(status: StatusCode, message: &str) -> Response {
    let mut body = JsonObjectWriter::with_capacity(message.len());
    json(
        status,
        body.field("error", &error_body(message, status).error)
            .finish(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_events() {
        for (part, text) in [
            (r#""data: {\"a\":1}\n\n""#, "data: {\"a\":1}\n\n"),
            (
                r#""data: 1\n\ndata: [DONE]""#,
                "data: 1\n\ndata: [DONE]\n\n",
            ),
            (r#"{"a": "x\ny"}"#, "data: {\"a\":\"x\\ny\"}\n\n"),
            (
                r#"[{"a":1},"data: 2\n\n"]"#,
                "data: {\"a\":1}\n\ndata: 2\n\n",
            ),
            (r#""word""#, "data: \"word\"\n\n"),
        ] {
            assert_eq!(events(&Bytes::from_static(part.as_bytes())), text, "{part}");
        }
    }

    #[test]
    fn a_worker_can_report_an_error_status() {
        let status =
            |value: &'static str| worker_status(&Bytes::from_static(value.as_bytes())).as_u16();
        assert_eq!(
            status(r#"{"object": "error", "message": "no", "code": 404}"#),
            404
        );
        for fine in [
            r#"{"object": "error", "code": 200}"#,
            r#"{"object": "list", "code": 404}"#,
            r#"{"object": "error"}"#,
            "1",
        ] {
            assert_eq!(status(fine), 200, "{fine}");
        }
    }
}
