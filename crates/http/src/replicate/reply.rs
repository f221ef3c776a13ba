//! How the desk's answers and refusals are said in Replicate's API: each status code and each error is here.

use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::blobs::BlobError;
use tidegate_core::health::Health;
use tidegate_core::refusal::{FieldError, Rule};
use tidegate_core::store::StoreError;
use tidegate_core::{Refusal, chain};
use tidegate_service::FileStoreError;

use super::rate_limits::whole_seconds;
use super::wire::{InvalidField, Problem};
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::cancel_after::InvalidCancelAfter;
use crate::shared::parse_body::{BodyParseError, ShapeError};
use crate::shared::response::json;

/// Something of ours.
pub(super) fn ok(body: &impl Serialize) -> Response {
    json(
        StatusCode::OK,
        serde_json::to_vec(body)
            .expect("our answers have string keys")
            .into(),
    )
}

/// Something new of ours.
pub(super) fn created(body: &impl Serialize) -> Response {
    json(
        StatusCode::CREATED,
        serde_json::to_vec(body)
            .expect("our answers have string keys")
            .into(),
    )
}

/// The answer on paths that nobody knows.
pub(super) async fn no_such_path(uri: Uri) -> Response {
    let detail = format!("There is nothing at `{}` on this server.", uri.path());
    problem(StatusCode::NOT_FOUND, "Not found", &detail, &[])
}

/// The answer to methods that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    wrong_method(&method, &uri)
}

pub(super) fn wrong_method(method: &Method, uri: &Uri) -> Response {
    let detail = format!("`{}` cannot be asked with {method}.", uri.path());
    problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method not allowed",
        &detail,
        &[],
    )
}

/// Lets paths through whose `%` escapes are text. The library would refuse others in its own words.
pub(super) async fn only_text(mut request: Request, next: Next) -> Response {
    if request.uri().path().contains('%') {
        let (mut parts, body) = request.into_parts();
        if RawPathParams::from_request_parts(&mut parts, &())
            .await
            .is_err()
        {
            let detail = "The path is not UTF-8 when its `%` escapes are read.";
            return problem(StatusCode::BAD_REQUEST, "Unreadable request", detail, &[]);
        }
        request = Request::from_parts(parts, body);
    }
    next.run(request).await
}

/// The answer to callers without a token that counts.
pub(crate) fn unauthenticated() -> Response {
    problem(
        StatusCode::UNAUTHORIZED,
        "Unauthenticated",
        "You did not pass a valid authentication token",
        &[],
    )
}

/// Everything that can be wrong with a request to this state, and what its caller is told.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Envelope(#[from] BodyParseError),
    /// The body should be a form with a file, and is not.
    #[error("{0}")]
    Form(String),
    /// A file could not be kept or read; the reason is for the log.
    #[error("The server cannot keep or read files at the moment.")]
    Disk(String),
    /// The account has left too many files.
    #[error("{0}")]
    Quota(String),
    /// The body is an object, but not the right one.
    #[error("{}", listed(.0))]
    Fields(Vec<InvalidField>),
    #[error(
        "The specified version does not exist (or perhaps you don't have permission to use it?)"
    )]
    UnknownVersion,
    /// There is no such thing: model, version, prediction, stream.
    #[error("There is no such {0}, or it is not yours.")]
    Unknown(&'static str),
    /// There is one with this name already, or it cannot be changed as it is now.
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    BadDeadline(#[from] InvalidCancelAfter),
    #[error("`Cancel-After` must be at least 5 seconds")]
    DeadlineTooShort,
    /// A bound of a list is no moment.
    #[error("`{0}` is not a moment; write it like `2026-01-31T12:00:00Z`")]
    BadMoment(&'static str),
    /// A list of jobs that were made neither here nor there.
    #[error("`source` must be `api` or `web`")]
    BadSource,
    #[error("The model has no training function.")]
    NotTrainable,
    #[error("The specified training destination does not exist")]
    UnknownDestination,
    #[error("This needs a token of an administrator of the server.")]
    NotYours,
    /// Only its owner may make or change it.
    #[error("Models of `{0}` are made and changed by `{0}` only.")]
    NotYourModel(String),
    /// It comes from a folder of the server.
    #[error("The model is served from a folder: change the folder and start the server again.")]
    ServedFromFolder,
    #[error("The model is not loaded yet.")]
    NoSchema,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("The server cannot look into its records at the moment.")]
    Store(#[from] StoreError),
    /// The account has asked too much; it may ask again after this time.
    #[error("Request was throttled. Your rate limit resets in ~{}s.", whole_seconds(*.0))]
    Throttled(Duration),
}

impl From<FileStoreError> for ApiError {
    fn from(error: FileStoreError) -> Self {
        match error {
            FileStoreError::TooLarge(limit) => Self::Body(BodyError::TooLarge {
                limit: usize::try_from(limit).unwrap_or(usize::MAX),
            }),
            FileStoreError::NoSpace => Self::Refused(Refusal::NoSpace),
            FileStoreError::Quota { .. } => Self::Quota(error.to_string()),
            FileStoreError::Io(_) | FileStoreError::Blob(_) => {
                Self::Disk(chain(&error).to_string())
            }
            FileStoreError::Store(error) => Self::Store(error),
        }
    }
}

impl From<BlobError> for ApiError {
    fn from(error: BlobError) -> Self {
        Self::Disk(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        use StatusCode as S;
        let detail = self.to_string();
        let told = |status, title| problem(status, title, &detail, &[]);
        match self {
            Self::Body(error) => error
                .reason()
                .tag(told(error.status(), "Unreadable request")),
            Self::Envelope(BodyParseError::Syntax(_) | BodyParseError::Unreadable(_))
            | Self::Form(_) => told(S::BAD_REQUEST, "Unreadable request"),
            Self::Envelope(BodyParseError::Shape(ShapeError {
                field: Some(field),
                message,
            })) => Self::Fields(vec![InvalidField::invalid(&field, &message)]).into_response(),
            Self::Envelope(BodyParseError::Shape(_)) => {
                told(S::UNPROCESSABLE_ENTITY, "Input validation failed")
            }
            Self::Fields(fields) => problem(
                S::UNPROCESSABLE_ENTITY,
                "Input validation failed",
                &detail,
                &fields,
            ),
            Self::Quota(_) => told(S::INSUFFICIENT_STORAGE, "Too many files"),
            Self::UnknownVersion => {
                told(S::UNPROCESSABLE_ENTITY, "Invalid version or not permitted")
            }
            Self::Unknown(_) | Self::UnknownDestination => told(S::NOT_FOUND, "Not found"),
            Self::Conflict(_) => told(S::CONFLICT, "Conflict"),
            Self::BadDeadline(_) | Self::DeadlineTooShort => {
                told(S::UNPROCESSABLE_ENTITY, "Invalid Cancel-After")
            }
            Self::BadMoment(_) | Self::BadSource => told(S::UNPROCESSABLE_ENTITY, "Invalid query"),
            Self::NotTrainable => told(S::UNPROCESSABLE_ENTITY, "Training not supported"),
            Self::NotYours => RejectReason::NotAllowed.tag(told(S::FORBIDDEN, "Forbidden")),
            Self::NotYourModel(_) | Self::ServedFromFolder => told(S::FORBIDDEN, "Forbidden"),
            Self::NoSchema => later(&detail),
            Self::Disk(error) => {
                tracing::error!(error, "a file could not be kept or read");
                later(&detail)
            }
            Self::Store(error) => {
                tracing::error!(error = %chain(&error), "the store could not be asked");
                later(&detail)
            }
            Self::Refused(refusal) => refused(&refusal),
            Self::Throttled(wait) => {
                RejectReason::RateLimited.tag(throttled(&detail, whole_seconds(wait)))
            }
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    use StatusCode as S;
    match refusal {
        Refusal::InvalidInput(errors) => {
            ApiError::Fields(errors.iter().map(invalid_field).collect()).into_response()
        }
        Refusal::NotReady { health } => later(not_ready(*health)),
        Refusal::StoreUnavailable | Refusal::Closing => later(&refusal.to_string()),
        Refusal::AtCapacity => throttled(&refusal.to_string(), 1),
        Refusal::NoSpace => problem(
            S::INSUFFICIENT_STORAGE,
            "Insufficient storage",
            &refusal.to_string(),
            &[],
        ),
        Refusal::IdInUse(_) | Refusal::InputDiffers(_) => {
            problem(S::CONFLICT, "Conflict", &refusal.to_string(), &[])
        }
        Refusal::BadWebhook { .. } => {
            let description = refusal.to_string();
            ApiError::Fields(vec![InvalidField {
                kind: "format",
                field: "webhook".to_owned(),
                description,
            }])
            .into_response()
        }
        Refusal::NotStreaming => problem(
            S::UNPROCESSABLE_ENTITY,
            "Streaming not supported",
            "Streaming not supported for the output type of the requested version.",
            &[],
        ),
    }
}

/// Why a model takes no jobs, and where to look.
fn not_ready(health: Health) -> &'static str {
    match health {
        Health::SetupFailed => {
            "The model could not be loaded: its setup failed. The log of the server says why."
        }
        Health::Defunct => {
            "The model cannot be run: its processes keep dying. The log of the server says why."
        }
        Health::Unknown | Health::Starting | Health::Ready | Health::Busy => {
            "The model is not loaded yet. Try again in a moment."
        }
    }
}

/// What is wrong with a body, as a list for people.
fn listed(fields: &[InvalidField]) -> String {
    let line = |field: &InvalidField| match field.field.as_str() {
        "" => format!("- {}\n", field.description),
        name => format!("- {name}: {}\n", field.description),
    };
    fields.iter().map(line).collect()
}

fn invalid_field(error: &FieldError) -> InvalidField {
    let place = match error.field.as_str() {
        "__root__" => "input".to_owned(),
        field => format!("input.{}", field.replace('/', ".")),
    };
    match &error.rule {
        Rule::Required => InvalidField {
            kind: "required",
            field: "input".to_owned(),
            description: format!("{} is required", error.field),
        },
        Rule::Choice(choices) => {
            let description = format!(
                "{place} must be one of the following: {}",
                choices.join(", ")
            );
            InvalidField {
                kind: "enum",
                field: place,
                description,
            }
        }
        rule => InvalidField {
            kind: name_of(rule),
            field: place,
            description: error.message.clone(),
        },
    }
}

/// A rule as Replicate's validator calls it.
fn name_of(rule: &Rule) -> &'static str {
    match rule {
        Rule::Required => "required",
        Rule::Choice(_) => "enum",
        Rule::Type => "invalid_type",
        Rule::Least => "number_gte",
        Rule::Most => "number_lte",
        Rule::Shortest => "string_gte",
        Rule::Longest => "string_lte",
        Rule::Pattern => "pattern",
        Rule::Other => "invalid",
    }
}

/// Not now, but soon.
fn later(detail: &str) -> Response {
    let mut response = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "Service unavailable",
        detail,
        &[],
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Too much at once. Clients look for the time in the header or in the body.
fn throttled(detail: &str, seconds: u64) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let body = Problem {
        title: "Too many requests",
        detail,
        status: status.as_u16(),
        retry_after: Some(seconds),
        invalid_fields: &[],
    };
    let mut response = said(status, &body);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn problem(
    status: StatusCode,
    title: &str,
    detail: &str,
    invalid_fields: &[InvalidField],
) -> Response {
    said(
        status,
        &Problem {
            title,
            detail,
            status: status.as_u16(),
            retry_after: None,
            invalid_fields,
        },
    )
}

fn said(status: StatusCode, problem: &Problem<'_>) -> Response {
    let mut response = json(
        status,
        serde_json::to_vec(problem)
            .expect("our answers have string keys")
            .into(),
    );
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}
