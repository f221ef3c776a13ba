//! How the desk's answers and refusals are said in Replicate's API: each status code and each error is here.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::blobs::BlobError;
use tidegate_core::refusal::{FieldError, Rule};
use tidegate_core::store::StoreError;
use tidegate_core::{Refusal, chain};
use tidegate_service::FilingError;

use super::limits::whole_seconds;
use super::wire::{InvalidField, Problem};
use crate::shared::body::BodyError;
use crate::shared::deadline::BadDeadline;
use crate::shared::envelope::EnvelopeError;
use crate::shared::json::json;

/// Something of ours.
pub(super) fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, serde_json::to_vec(body).expect("our answers have string keys").into())
}

/// Something new of ours.
pub(super) fn created(body: &impl Serialize) -> Response {
    json(StatusCode::CREATED, serde_json::to_vec(body).expect("our answers have string keys").into())
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
    problem(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", &detail, &[])
}

/// The answer to callers without a token that counts.
pub(crate) fn unauthenticated() -> Response {
    problem(StatusCode::UNAUTHORIZED, "Unauthenticated", "You did not pass a valid authentication token", &[])
}

/// Everything that can be wrong with a request to this face.
#[derive(Debug)]
pub(super) enum Trouble {
    Body(BodyError),
    Envelope(EnvelopeError),
    /// The body should be a form with a file, and is not.
    Form(String),
    /// A file could not be kept or read.
    Disk(String),
    /// The account has left too many files.
    Quota(String),
    /// The body is an object, but not the right one.
    Fields(Vec<InvalidField>),
    UnknownVersion,
    /// There is no such thing: model, version, prediction, stream.
    Unknown(&'static str),
    /// There is one with this name already, or it cannot be changed as it is now.
    Conflict(String),
    BadDeadline(BadDeadline),
    DeadlineTooShort,
    /// A bound of a list is no moment.
    BadMoment(&'static str),
    /// A list of jobs that were made neither here nor there.
    BadSource,
    NotStreaming,
    NotTrainable,
    UnknownDestination,
    NotYours,
    /// Only its owner may make or change it.
    NotYourModel(String),
    /// It comes from a folder of the server.
    Served,
    NoSchema,
    Refused(Refusal),
    Store(StoreError),
    /// The account has asked too much; it may ask again after this time.
    Throttled(Duration),
}

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<EnvelopeError> for Trouble {
    fn from(error: EnvelopeError) -> Self {
        Self::Envelope(error)
    }
}

impl From<BadDeadline> for Trouble {
    fn from(error: BadDeadline) -> Self {
        Self::BadDeadline(error)
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<FilingError> for Trouble {
    fn from(error: FilingError) -> Self {
        match error {
            FilingError::TooLarge(limit) => Self::Body(BodyError::TooLarge { limit: usize::try_from(limit).unwrap_or(usize::MAX) }),
            FilingError::NoSpace => Self::Refused(Refusal::NoSpace),
            FilingError::Quota { .. } => Self::Quota(error.to_string()),
            FilingError::Io(_) | FilingError::Blob(_) => Self::Disk(chain(&error).to_string()),
            FilingError::Store(error) => Self::Store(error),
        }
    }
}

impl From<BlobError> for Trouble {
    fn from(error: BlobError) -> Self {
        Self::Disk(error.to_string())
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        use StatusCode as S;
        match self {
            Self::Body(error) => problem(error.status(), "Unreadable request", &error.to_string(), &[]),
            Self::Envelope(error @ (EnvelopeError::Syntax(_) | EnvelopeError::Text(_))) => {
                problem(S::BAD_REQUEST, "Unreadable request", &error.to_string(), &[])
            }
            Self::Envelope(error @ EnvelopeError::Shape(_)) => {
                problem(S::UNPROCESSABLE_ENTITY, "Input validation failed", &error.to_string(), &[])
            }
            Self::Form(detail) => problem(S::BAD_REQUEST, "Unreadable request", &detail, &[]),
            Self::Disk(error) => {
                tracing::error!(error, "a file could not be kept or read");
                later("The server cannot keep or read files at the moment.")
            }
            Self::Quota(detail) => problem(S::INSUFFICIENT_STORAGE, "Too many files", &detail, &[]),
            Self::Fields(fields) => invalid(&fields),
            Self::UnknownVersion => problem(
                S::UNPROCESSABLE_ENTITY,
                "Invalid version or not permitted",
                "The specified version does not exist (or perhaps you don't have permission to use it?)",
                &[],
            ),
            Self::Unknown(what) => problem(S::NOT_FOUND, "Not found", &format!("There is no such {what}, or it is not yours."), &[]),
            Self::Conflict(detail) => problem(S::CONFLICT, "Conflict", &detail, &[]),
            Self::BadDeadline(error) => problem(S::UNPROCESSABLE_ENTITY, "Invalid Cancel-After", &error.to_string(), &[]),
            Self::DeadlineTooShort => {
                problem(S::UNPROCESSABLE_ENTITY, "Invalid Cancel-After", "`Cancel-After` must be at least 5 seconds", &[])
            }
            Self::BadMoment(name) => {
                let detail = format!("`{name}` is not a moment; write it like `2026-01-31T12:00:00Z`");
                problem(S::UNPROCESSABLE_ENTITY, "Invalid query", &detail, &[])
            }
            Self::BadSource => problem(S::UNPROCESSABLE_ENTITY, "Invalid query", "`source` must be `api` or `web`", &[]),
            Self::NotStreaming => refused(&Refusal::NotStreaming),
            Self::NotTrainable => problem(S::UNPROCESSABLE_ENTITY, "Training not supported", "The model has no training function.", &[]),
            Self::UnknownDestination => problem(S::NOT_FOUND, "Not found", "The specified training destination does not exist", &[]),
            Self::NotYours => problem(S::FORBIDDEN, "Forbidden", "This needs a token of an administrator of the server.", &[]),
            Self::NotYourModel(owner) => {
                problem(S::FORBIDDEN, "Forbidden", &format!("Models of `{owner}` are made and changed by `{owner}` only."), &[])
            }
            Self::Served => {
                problem(S::FORBIDDEN, "Forbidden", "The model is served from a folder: change the folder and start the server again.", &[])
            }
            Self::NoSchema => later("The model is not loaded yet."),
            Self::Refused(refusal) => refused(&refusal),
            Self::Store(error) => {
                tracing::error!(error = %chain(&error), "the store could not be asked");
                later("The server cannot look into its records at the moment.")
            }
            Self::Throttled(wait) => throttled(whole_seconds(wait)),
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    use StatusCode as S;
    match refusal {
        Refusal::InvalidInput(errors) => invalid(&errors.iter().map(invalid_field).collect::<Vec<_>>()),
        Refusal::NotReady { .. } | Refusal::StoreUnavailable | Refusal::Closing => later(&refusal.to_string()),
        Refusal::AtCapacity => problem(S::TOO_MANY_REQUESTS, "Too many requests", &refusal.to_string(), &[]),
        Refusal::NoSpace => problem(S::INSUFFICIENT_STORAGE, "Insufficient storage", &refusal.to_string(), &[]),
        Refusal::IdInUse(_) | Refusal::InputDiffers(_) => problem(S::CONFLICT, "Conflict", &refusal.to_string(), &[]),
        Refusal::BadWebhook { .. } => {
            let description = refusal.to_string();
            let field = InvalidField { kind: "format", field: "webhook".to_owned(), description };
            invalid(&[field])
        }
        Refusal::NotStreaming => problem(
            S::UNPROCESSABLE_ENTITY,
            "Streaming not supported",
            "Streaming not supported for the output type of the requested version.",
            &[],
        ),
    }
}

/// What is wrong with a body, as a list for people and as one for programs.
fn invalid(fields: &[InvalidField]) -> Response {
    let line = |field: &InvalidField| match field.field.as_str() {
        "" => format!("- {}\n", field.description),
        name => format!("- {name}: {}\n", field.description),
    };
    let detail: String = fields.iter().map(line).collect();
    problem(StatusCode::UNPROCESSABLE_ENTITY, "Input validation failed", &detail, fields)
}

fn invalid_field(error: &FieldError) -> InvalidField {
    let place = match error.field.as_str() {
        "__root__" => "input".to_owned(),
        field => format!("input.{}", field.replace('/', ".")),
    };
    match &error.rule {
        Rule::Required => InvalidField { kind: "required", field: "input".to_owned(), description: format!("{} is required", error.field) },
        Rule::Choice(choices) => {
            let description = format!("{place} must be one of the following: {}", choices.join(", "));
            InvalidField { kind: "enum", field: place, description }
        }
        Rule::Other => InvalidField { kind: "invalid", field: place, description: error.message.clone() },
    }
}

/// Not now, but soon.
fn later(detail: &str) -> Response {
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "Service unavailable", detail, &[]);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Too much at once. Clients look for the time in the header or in the body.
fn throttled(seconds: u64) -> Response {
    let detail = format!("Request was throttled. Your rate limit resets in ~{seconds}s.");
    let status = StatusCode::TOO_MANY_REQUESTS;
    let body =
        Problem { title: "Too many requests", detail: &detail, status: status.as_u16(), retry_after: Some(seconds), invalid_fields: &[] };
    let mut response = said(status, &body);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn problem(status: StatusCode, title: &str, detail: &str, invalid_fields: &[InvalidField]) -> Response {
    said(status, &Problem { title, detail, status: status.as_u16(), retry_after: None, invalid_fields })
}

fn said(status: StatusCode, problem: &Problem<'_>) -> Response {
    let mut response = json(status, serde_json::to_vec(problem).expect("our answers have string keys").into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
