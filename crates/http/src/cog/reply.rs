//! Maps results and errors of the job service to responses of Cog's API: all status codes and
//! bodies.
//!
//! Keys are in alphabetical order, as Cog writes them.

use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Serialize, Serializer};
use tidegate_core::counters::MetricLabel;
use tidegate_core::health::Health;
use tidegate_core::id::InvalidJobId;
use tidegate_core::planted;
use tidegate_core::refusal::{FieldError, Rule};
use tidegate_core::{JobKind, Refusal, Status};
use tidegate_service::{Job, Snapshot};

use crate::shared::body_limit::BodyError;
use crate::shared::cancel_after::{CANCEL_AFTER, InvalidCancelAfter};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::BodyParseError;
pub(super) use crate::shared::response::json;
use crate::shared::response::{json_body, retry_soon};
use crate::shared::warnings::with_warnings;

/// The response to a client that waited for the result.
pub(super) fn finished(job: &Snapshot) -> Response {
    let body = result(job).finish_body();
    with_warnings(json_body(StatusCode::OK, body), &job.warnings)
}

/// The response to a client that does not wait.
pub(super) fn accepted(job: &Job) -> Response {
    let body = JsonObjectWriter::with_capacity(64)
        .field("id", job.id())
        .field("status", "starting")
        .finish();
    with_warnings(json(StatusCode::ACCEPTED, body), &job.warnings())
}

/// The current state of a job, with its input.
pub(super) fn snapshot(status: StatusCode, job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id)
        .raw("input", Some(&job.input));
    finish(&mut body, job);
    with_warnings(json_body(status, body.finish_body()), &job.warnings)
}

/// All details of a job. Cog has no such response; the names are those of its schema.
pub(super) fn details(job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    body.maybe(
        "completed_at",
        job.completed_at.map(super::health::timestamp).as_deref(),
    );
    body.field("created_at", &super::health::timestamp(job.created_at));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id)
        .raw("input", Some(&job.input));
    body.field("logs", &job.logs)
        .field("metrics", &ResultMetrics(job))
        .raw("output", job.output.as_ref());
    body.maybe(
        "started_at",
        job.started_at.map(super::health::timestamp).as_deref(),
    );
    let status = job.status;
    planted!(TwoEnds, let status = if status == Status::Canceled { Status::Failed } else { status });
    planted!(sometimes StaleState if status == Status::Succeeded, let status = Status::Processing);
    let body = body.field("status", status_name(status)).finish();
    with_warnings(json(StatusCode::OK, body), &job.warnings)
}

/// The result of a job, as in responses, webhooks and the last event of a stream.
pub(crate) fn result_body(job: &Snapshot) -> Bytes {
    result(job).finish()
}

fn result(job: &Snapshot) -> JsonObjectWriter {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id);
    finish(&mut body, job);
    body
}

/// Adds what all descriptions of a job end with.
fn finish(body: &mut JsonObjectWriter, job: &Snapshot) {
    body.field("logs", &job.logs)
        .field("metrics", &ResultMetrics(job))
        .raw("output", job.output.as_ref());
    body.field("status", status_name(job.status));
}

/// The metrics of the model, how long the job waited, if it did, and how long the model ran.
struct ResultMetrics<'a>(&'a Snapshot);

impl Serialize for ResultMetrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Snapshot { metrics, times, .. }) = self;
        let Some(times) = times else {
            return metrics.serialize(serializer);
        };
        let ours = [
            ("load_time", times.load_time),
            ("predict_time", Some(times.predict_time)),
            ("queue_time", times.queue_time),
        ];
        let ours = ours
            .into_iter()
            .filter_map(|(name, seconds)| Some((name, seconds?)));
        if metrics.is_empty() {
            return serializer.collect_map(ours);
        }
        let mut all = metrics.clone();
        for (name, seconds) in ours {
            // `predict_time` is reserved; the others are the model's if it records them.
            if name == "predict_time" || !all.contains_key(name) {
                all.insert(name.to_owned(), seconds.into());
            }
        }
        all.serialize(serializer)
    }
}

fn capacity(job: &Snapshot) -> usize {
    job.output.as_ref().map_or(0, Bytes::len) + job.logs.len() + job.input.len()
}

/// The name of a status in Cog's API.
fn status_name(status: Status) -> &'static str {
    match status {
        Status::Queued | Status::Starting => "starting",
        Status::Processing => "processing",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Canceled | Status::Aborted => "canceled",
    }
}

/// A response with the body `{}`.
pub(super) fn empty(status: StatusCode) -> Response {
    json(status, Bytes::from_static(b"{}"))
}

/// The response on unknown paths.
pub(super) async fn no_such_path(uri: Uri) -> Response {
    plain_error(
        StatusCode::NOT_FOUND,
        &format!("no such path: `{}`; GET / lists the paths", uri.path()),
    )
}

/// The response to a method that the path does not support. The `Allow` header lists those that it
/// does.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    plain_error(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!(
            "method {method} not allowed for `{}`; the `allow` header lists the allowed ones",
            uri.path()
        ),
    )
}

/// All errors of this API.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Parse(#[from] BodyParseError),
    #[error("{} ID must match the ID supplied in the URL", .0.as_str())]
    IdMismatch(JobKind),
    #[error("{error}")]
    InvalidId { error: InvalidJobId, in_url: bool },
    #[error(transparent)]
    InvalidCancelAfter(#[from] InvalidCancelAfter),
    #[error("Training endpoints do not support streaming responses.")]
    TrainingStream,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("Too many stream subscribers")]
    TooManyReaders,
    #[error("unknown prediction `{0}`; it does not exist, or its record has expired")]
    UnknownJob(String),
    #[error("the path is not UTF-8 after decoding its `%` escapes")]
    PathNotUtf8,
    #[error("OpenAPI schema not available")]
    NoSchema,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        use StatusCode as S;
        let text = self.to_string();
        let plain = |status| plain_error(status, &text);
        let at = |status, location: &[&str]| details_of(status, &[Detail::of(location, &text)]);
        match self {
            Self::Body(error) => error.reason().tag(plain(error.status())),
            Self::Parse(BodyParseError::Syntax(_) | BodyParseError::Unreadable(_)) => {
                at(S::BAD_REQUEST, &["body"])
            }
            Self::Parse(BodyParseError::Shape(_)) => at(S::UNPROCESSABLE_ENTITY, &["body"]),
            Self::IdMismatch(_) | Self::InvalidId { in_url: false, .. } => {
                at(S::UNPROCESSABLE_ENTITY, &["body", "id"])
            }
            Self::InvalidId { in_url: true, .. } => at(S::UNPROCESSABLE_ENTITY, &["path", "id"]),
            Self::InvalidCancelAfter(_) => at(S::UNPROCESSABLE_ENTITY, &["header", CANCEL_AFTER]),
            Self::TrainingStream => plain(S::NOT_ACCEPTABLE),
            Self::TooManyReaders => plain(S::TOO_MANY_REQUESTS),
            Self::UnknownJob(_) => plain(S::NOT_FOUND),
            Self::PathNotUtf8 => plain(S::BAD_REQUEST),
            Self::NoSchema => plain(S::SERVICE_UNAVAILABLE),
            Self::Refused(refusal) => refused(&refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    match refusal {
        Refusal::NotReady {
            health: Health::Defunct,
        } => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "The model's process has died and was not replaced. GET /health-check returns the cause.",
        ),
        Refusal::NotReady {
            health:
                Health::Unknown | Health::Starting | Health::Ready | Health::Busy | Health::SetupFailed,
        } => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "Setup has not finished yet. Wait until it has finished, or GET /health-check for status.",
        ),
        Refusal::StoreUnavailable => retry_soon(failed(
            StatusCode::SERVICE_UNAVAILABLE,
            &refusal.to_string(),
        )),
        Refusal::Closing => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "The server is shutting down.",
        ),
        Refusal::NoSpace => failed(StatusCode::INSUFFICIENT_STORAGE, &refusal.to_string()),
        Refusal::AtCapacity => failed(
            StatusCode::CONFLICT,
            // Cog's text; clients compare it.
            "At capacity - all prediction slots busy",
        ),
        Refusal::QueueFull(_) => failed(StatusCode::CONFLICT, &refusal.to_string()),
        Refusal::IdInUse(_) | Refusal::InputDiffers(_) => {
            failed(StatusCode::CONFLICT, &refusal.to_string())
        }
        Refusal::NotStreaming => plain_error(
            StatusCode::NOT_ACCEPTABLE,
            "This model does not support streaming responses. Add @cog.streaming to predict() to enable SSE.",
        ),
        Refusal::BadWebhook { .. } => details_of(
            StatusCode::UNPROCESSABLE_ENTITY,
            &[Detail::of(&["body", "webhook"], &refusal.to_string())],
        ),
        Refusal::InvalidInput(errors) => details_of(
            StatusCode::UNPROCESSABLE_ENTITY,
            &errors.iter().map(Detail::of_field).collect::<Vec<_>>(),
        ),
    }
}

pub(super) fn plain_error(status: StatusCode, error: &str) -> Response {
    json(
        status,
        JsonObjectWriter::with_capacity(error.len())
            .field("error", error)
            .finish(),
    )
}

fn failed(status: StatusCode, error: &str) -> Response {
    json(
        status,
        JsonObjectWriter::with_capacity(error.len())
            .field("error", error)
            .field("status", "failed")
            .finish(),
    )
}

#[derive(Serialize)]
struct Detail<'a> {
    loc: Vec<&'a str>,
    msg: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl<'a> Detail<'a> {
    fn of(loc: &[&'a str], msg: &'a str) -> Self {
        Self {
            loc: loc.to_vec(),
            msg,
            kind: "value_error",
        }
    }

    fn of_field(error: &'a FieldError) -> Self {
        let kind = match error.rule {
            Rule::Required => "value_error.missing",
            Rule::Choice(_)
            | Rule::Type
            | Rule::Minimum
            | Rule::Maximum
            | Rule::MinLength
            | Rule::MaxLength
            | Rule::Pattern
            | Rule::Other => "value_error",
        };
        Self {
            loc: vec!["body", "input", &error.field],
            msg: &error.message,
            kind,
        }
    }
}

fn details_of(status: StatusCode, details: &[Detail<'_>]) -> Response {
    json(
        status,
        JsonObjectWriter::with_capacity(128)
            .field("detail", details)
            .finish(),
    )
}
