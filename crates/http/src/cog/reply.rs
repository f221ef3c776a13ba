//! How the desk's answers and refusals are said in Cog's API: each status code and each body is here.
//!
//! Keys are in alphabetical order, as Cog writes them.

use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Serialize, Serializer};
use tidegate_core::health::Health;
use tidegate_core::id::InvalidJobId;
use tidegate_core::meter::MetricLabel;
use tidegate_core::planted::{Planted, planted, planted_now_and_then};
use tidegate_core::refusal::{FieldError, Rule};
use tidegate_core::{JobId, JobKind, Refusal, Status};
use tidegate_service::Snapshot;

use crate::shared::body_limit::BodyError;
use crate::shared::cancel_after::{CANCEL_AFTER, InvalidCancelAfter};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::BodyParseError;
pub(super) use crate::shared::response::json;

/// The answer to a caller that waited.
pub(super) fn finished(job: &Snapshot) -> Response {
    json(StatusCode::OK, result_body(job))
}

/// The answer to a caller that does not wait.
pub(super) fn accepted(id: &JobId) -> Response {
    json(
        StatusCode::ACCEPTED,
        JsonObjectWriter::with_capacity(64)
            .field("id", id)
            .field("status", "starting")
            .finish(),
    )
}

/// A job as it is now, with its input.
pub(super) fn snapshot(status: StatusCode, job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(room(job));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id)
        .raw("input", Some(&job.input));
    json(status, rest(&mut body, job))
}

/// A job with all that is known about it; Cog has no such answer, the names are those of its schema.
pub(super) fn details(job: &Snapshot) -> Response {
    let mut body = JsonObjectWriter::with_capacity(room(job));
    body.maybe(
        "completed_at",
        job.completed_at.map(super::health::timestamp).as_deref(),
    );
    body.field("created_at", &super::health::timestamp(job.created_at));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id)
        .raw("input", Some(&job.input));
    body.field("logs", &job.logs)
        .field("metrics", &Metrics(job))
        .raw("output", job.output.as_ref());
    body.maybe(
        "started_at",
        job.started_at.map(super::health::timestamp).as_deref(),
    );
    let status = match job.status {
        Status::Canceled if planted(Planted::TwoEnds) => Status::Failed,
        Status::Succeeded if planted_now_and_then(Planted::StaleState) => Status::Processing,
        status => status,
    };
    json(StatusCode::OK, body.field("status", word(status)).finish())
}

/// A job as answers, webhooks and the last event of a stream tell it.
pub(crate) fn result_body(job: &Snapshot) -> Bytes {
    let mut body = JsonObjectWriter::with_capacity(room(job));
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id);
    rest(&mut body, job)
}

fn rest(body: &mut JsonObjectWriter, job: &Snapshot) -> Bytes {
    body.field("logs", &job.logs)
        .field("metrics", &Metrics(job))
        .raw("output", job.output.as_ref());
    body.field("status", word(job.status)).finish()
}

/// What the model noted, and how long it took.
struct Metrics<'a>(&'a Snapshot);

impl Serialize for Metrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(Snapshot {
            metrics,
            predict_time,
            ..
        }) = self;
        let name = "predict_time";
        match predict_time {
            None => metrics.serialize(serializer),
            Some(seconds) if metrics.is_empty() => serializer.collect_map([(name, seconds)]),
            Some(seconds) => {
                let mut all = metrics.clone();
                all.insert(name.to_owned(), (*seconds).into());
                all.serialize(serializer)
            }
        }
    }
}

fn room(job: &Snapshot) -> usize {
    job.output.as_ref().map_or(0, Bytes::len) + job.logs.len() + job.input.len()
}

/// A status in Cog's words.
fn word(status: Status) -> &'static str {
    match status {
        Status::Queued | Status::Starting => "starting",
        Status::Processing => "processing",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Canceled | Status::Aborted => "canceled",
    }
}

/// `{}`
pub(super) fn empty(status: StatusCode) -> Response {
    json(status, Bytes::from_static(b"{}"))
}

/// The answer on paths that nobody knows.
pub(super) async fn no_such_path(uri: Uri) -> Response {
    plain_error(
        StatusCode::NOT_FOUND,
        &format!(
            "there is nothing at `{}`; GET / lists what there is",
            uri.path()
        ),
    )
}

/// The answer to methods that a path does not have. Those that it has are in `Allow`.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    plain_error(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!(
            "`{}` cannot be asked with {method}; see the header `allow`",
            uri.path()
        ),
    )
}

/// Everything that can be wrong with a request to this face, and what its caller is told.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Envelope(#[from] BodyParseError),
    #[error("{} ID must match the ID supplied in the URL", .0.as_str())]
    IdMismatch(JobKind),
    #[error("{error}")]
    BadId { error: InvalidJobId, in_url: bool },
    #[error(transparent)]
    BadDeadline(#[from] InvalidCancelAfter),
    #[error("Training endpoints do not support streaming responses.")]
    TrainingStream,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("Too many stream subscribers")]
    TooManyReaders,
    #[error("there is no prediction with the id `{0}`, or it was over too long ago to be kept")]
    Unknown(String),
    #[error("the path is not UTF-8 when its `%` escapes are read")]
    UnreadablePath,
    #[error("OpenAPI schema not available")]
    NoSchema,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        use StatusCode as S;
        let text = self.to_string();
        let plain = |status| plain_error(status, &text);
        let at = |status, place: &[&str]| details_of(status, &[Detail::of(place, &text)]);
        match self {
            Self::Body(error) => error.reason().tag(plain(error.status())),
            Self::Envelope(BodyParseError::Syntax(_) | BodyParseError::Unreadable(_)) => {
                at(S::BAD_REQUEST, &["body"])
            }
            Self::Envelope(BodyParseError::Shape(_)) => at(S::UNPROCESSABLE_ENTITY, &["body"]),
            Self::IdMismatch(_) | Self::BadId { in_url: false, .. } => {
                at(S::UNPROCESSABLE_ENTITY, &["body", "id"])
            }
            Self::BadId { in_url: true, .. } => at(S::UNPROCESSABLE_ENTITY, &["path", "id"]),
            Self::BadDeadline(_) => at(S::UNPROCESSABLE_ENTITY, &["header", CANCEL_AFTER]),
            Self::TrainingStream => plain(S::NOT_ACCEPTABLE),
            Self::TooManyReaders => plain(S::TOO_MANY_REQUESTS),
            Self::Unknown(_) => plain(S::NOT_FOUND),
            Self::UnreadablePath => plain(S::BAD_REQUEST),
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
            "The model's process has died, again and again or for good. GET /health-check says why.",
        ),
        Refusal::NotReady {
            health:
                Health::Unknown | Health::Starting | Health::Ready | Health::Busy | Health::SetupFailed,
        } => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "Setup has not finished yet. Wait until it has finished, or GET /health-check for status.",
        ),
        Refusal::StoreUnavailable => failed(StatusCode::SERVICE_UNAVAILABLE, &refusal.to_string()),
        Refusal::Closing => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "The server is shutting down.",
        ),
        Refusal::NoSpace => failed(StatusCode::INSUFFICIENT_STORAGE, &refusal.to_string()),
        Refusal::AtCapacity => failed(
            StatusCode::CONFLICT,
            "At capacity - all prediction slots busy",
        ),
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
            | Rule::Least
            | Rule::Most
            | Rule::Shortest
            | Rule::Longest
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
