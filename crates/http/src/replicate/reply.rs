//! Maps results and refusals of the service to responses of Replicate's API: every status code and
//! every error is here.

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

use super::wire::{InvalidField, Problem};
use crate::openai::error::{ErrorObject, OpenAiError};
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::cancel_after::InvalidCancelAfter;
use crate::shared::parse_body::{BodyParseError, ShapeError};
use crate::shared::response::{json, retry_soon};

/// 200 with a JSON body.
pub(super) fn ok(body: &impl Serialize) -> Response {
    json(
        StatusCode::OK,
        serde_json::to_vec(body)
            .expect("responses have string keys")
            .into(),
    )
}

/// 201 with a JSON body.
pub(super) fn created(body: &impl Serialize) -> Response {
    json(
        StatusCode::CREATED,
        serde_json::to_vec(body)
            .expect("responses have string keys")
            .into(),
    )
}

/// The response for an unknown path.
pub(super) async fn unknown_path(uri: Uri) -> Response {
    let detail = format!("There is nothing at `{}` on this server.", uri.path());
    problem(StatusCode::NOT_FOUND, "Not found", &detail, &[])
}

/// The response for a method that the path does not support.
pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    method_not_allowed_for(&method, &uri)
}

pub(super) fn method_not_allowed_for(method: &Method, uri: &Uri) -> Response {
    let detail = format!("Method {method} is not allowed for `{}`.", uri.path());
    problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method not allowed",
        &detail,
        &[],
    )
}

/// Rejects paths that are not UTF-8 after percent-decoding. Otherwise axum would reject them with a
/// response in another format.
pub(super) async fn reject_non_utf8_paths(mut request: Request, next: Next) -> Response {
    if request.uri().path().contains('%') {
        let (mut parts, body) = request.into_parts();
        if RawPathParams::from_request_parts(&mut parts, &())
            .await
            .is_err()
        {
            let detail = "The path is not valid UTF-8 after percent-decoding.";
            return problem(StatusCode::BAD_REQUEST, "Unreadable request", detail, &[]);
        }
        request = Request::from_parts(parts, body);
    }
    next.run(request).await
}

/// The response for a request without a valid token.
pub(crate) fn unauthenticated() -> Response {
    problem(
        StatusCode::UNAUTHORIZED,
        "Unauthenticated",
        "You did not pass a valid authentication token",
        &[],
    )
}

/// The same for the list of models, which clients of OpenAI's API read too.
pub(crate) fn unauthenticated_at_models(reason: &str) -> Response {
    let status = StatusCode::UNAUTHORIZED;
    let error = OpenAiError::unauthenticated(reason);
    let body = Problem {
        title: "Unauthenticated",
        detail: "You did not pass a valid authentication token",
        status: status.as_u16(),
        retry_after: None,
        invalid_fields: &[],
        error: Some(error.object()),
    };
    problem_response(status, &body)
}

/// The response for a request that the server does not accept from this client.
pub(crate) fn forbidden(detail: &str) -> Response {
    problem(StatusCode::FORBIDDEN, "Forbidden", detail, &[])
}

/// The errors of this API, with the `detail` that the client gets.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Envelope(#[from] BodyParseError),
    /// The body is not a form with a file.
    #[error("{0}")]
    Form(String),
    /// A file cannot be stored or read. The reason goes to the log only.
    #[error("The server cannot store or read files at the moment.")]
    Disk(String),
    /// The file is larger than `--max-file`.
    #[error("{0}")]
    FileTooLarge(String),
    /// The account has reached its file quota.
    #[error("{0}")]
    Quota(String),
    /// The body is an object with missing or invalid fields.
    #[error("{}", list_fields(.0))]
    Fields(Vec<InvalidField>),
    #[error(
        "The specified version does not exist (or perhaps you don't have permission to use it?)"
    )]
    UnknownVersion,
    /// A model, version, prediction, stream etc. that does not exist or that the caller may not
    /// see.
    #[error("There is no such {0}, or you do not have access to it.")]
    Unknown(&'static str),
    /// A feature that needs another option of the server.
    #[error("{0}")]
    NotConfigured(&'static str),
    /// The name exists already, or the resource cannot be changed in its current state.
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    InvalidDeadline(#[from] InvalidCancelAfter),
    #[error("`Cancel-After` must be at least 5 seconds")]
    DeadlineTooShort,
    /// A time bound of a list is not a timestamp.
    #[error("`{0}` is not an RFC 3339 timestamp; write it like `2026-01-31T12:00:00Z`")]
    InvalidTimestamp(&'static str),
    /// The `source` of a list is unknown.
    #[error("`source` must be `api` or `web`")]
    InvalidSource,
    #[error("The model has no training function.")]
    NotTrainable,
    #[error("The specified training destination does not exist")]
    UnknownDestination,
    #[error("This request needs an administrator token.")]
    AdminOnly,
    /// Only the owner may create or change the model.
    #[error("Only `{0}` can create or change models of `{0}`.")]
    NotModelOwner(String),
    /// The model comes from a folder and cannot be changed over the API.
    #[error("The model is served from a folder: change the folder and restart the server.")]
    ServedFromFolder,
    #[error("The model is not loaded yet.")]
    ModelNotLoaded,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("The server cannot use its database at the moment.")]
    Store(#[from] StoreError),
}

impl From<FileStoreError> for ApiError {
    fn from(error: FileStoreError) -> Self {
        match error {
            FileStoreError::TooLarge(_) => Self::FileTooLarge(error.to_string()),
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
        let problem_of = |status, title| problem(status, title, &detail, &[]);
        match self {
            Self::Body(error) => {
                let title = match error {
                    BodyError::TooLarge { .. } | BodyError::PartTooLarge { .. } => {
                        "Request too large"
                    }
                    _ => "Unreadable request",
                };
                error.reason().tag(problem_of(error.status(), title))
            }
            Self::FileTooLarge(_) => {
                RejectReason::BodyTooLarge.tag(problem_of(S::PAYLOAD_TOO_LARGE, "File too large"))
            }
            Self::Envelope(BodyParseError::Syntax(_) | BodyParseError::Unreadable(_))
            | Self::Form(_) => problem_of(S::BAD_REQUEST, "Unreadable request"),
            Self::Envelope(BodyParseError::Shape(ShapeError {
                field: Some(field),
                message,
            })) => Self::Fields(vec![InvalidField::invalid(&field, &message)]).into_response(),
            Self::Envelope(BodyParseError::Shape(_)) => {
                problem_of(S::UNPROCESSABLE_ENTITY, "Input validation failed")
            }
            Self::Fields(fields) => problem(
                S::UNPROCESSABLE_ENTITY,
                "Input validation failed",
                &detail,
                &fields,
            ),
            Self::Quota(_) => problem_of(S::INSUFFICIENT_STORAGE, "Too many files"),
            Self::UnknownVersion => {
                problem_of(S::UNPROCESSABLE_ENTITY, "Invalid version or not permitted")
            }
            Self::Unknown(_) | Self::NotConfigured(_) | Self::UnknownDestination => {
                problem_of(S::NOT_FOUND, "Not found")
            }
            Self::Conflict(_) => problem_of(S::CONFLICT, "Conflict"),
            Self::InvalidDeadline(_) | Self::DeadlineTooShort => {
                problem_of(S::UNPROCESSABLE_ENTITY, "Invalid Cancel-After")
            }
            Self::InvalidTimestamp(_) | Self::InvalidSource => {
                problem_of(S::UNPROCESSABLE_ENTITY, "Invalid query")
            }
            Self::NotTrainable => problem_of(S::UNPROCESSABLE_ENTITY, "Training not supported"),
            Self::AdminOnly => RejectReason::NotAllowed.tag(problem_of(S::FORBIDDEN, "Forbidden")),
            Self::NotModelOwner(_) | Self::ServedFromFolder => {
                problem_of(S::FORBIDDEN, "Forbidden")
            }
            Self::ModelNotLoaded => unavailable(&detail),
            Self::Disk(error) => {
                tracing::error!(error, "failed to store or read file");
                unavailable(&detail)
            }
            Self::Store(error) => {
                tracing::error!(error = %chain(&error), "failed to use store");
                unavailable(&detail)
            }
            Self::Refused(refusal) => refused(&refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    use StatusCode as S;
    match refusal {
        Refusal::InvalidInput(errors) => {
            ApiError::Fields(errors.iter().map(invalid_field).collect()).into_response()
        }
        Refusal::NotReady { health } => unavailable(not_ready(*health)),
        Refusal::StoreUnavailable | Refusal::Closing => unavailable(&refusal.to_string()),
        Refusal::AtCapacity | Refusal::QueueFull(_) => throttled(&refusal.to_string(), 1),
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

/// Why a model accepts no jobs.
fn not_ready(health: Health) -> &'static str {
    match health {
        Health::SetupFailed => {
            "The model could not be loaded: its setup failed. See the server log."
        }
        Health::Defunct => "The model cannot run: its processes keep exiting. See the server log.",
        Health::Unknown | Health::Starting | Health::Ready | Health::Busy => {
            "The model is not loaded yet. Try again in a moment."
        }
    }
}

/// The invalid fields as a list for people.
fn list_fields(fields: &[InvalidField]) -> String {
    let line = |field: &InvalidField| match field.field.as_str() {
        "" => format!("- {}\n", field.description),
        name => format!("- {name}: {}\n", field.description),
    };
    fields.iter().map(line).collect()
}

fn invalid_field(error: &FieldError) -> InvalidField {
    let path = match error.field.as_str() {
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
                "{path} must be one of the following: {}",
                choices.join(", ")
            );
            InvalidField {
                kind: "enum",
                field: path,
                description,
            }
        }
        rule => InvalidField {
            kind: rule_name(rule),
            field: path,
            description: error.message.clone(),
        },
    }
}

/// The name of a rule in Replicate's validator.
fn rule_name(rule: &Rule) -> &'static str {
    match rule {
        Rule::Required => "required",
        Rule::Choice(_) => "enum",
        Rule::Type => "invalid_type",
        Rule::Minimum => "number_gte",
        Rule::Maximum => "number_lte",
        Rule::MinLength => "string_gte",
        Rule::MaxLength => "string_lte",
        Rule::Pattern => "pattern",
        Rule::Other => "invalid",
    }
}

/// 503 with `Retry-After`.
fn unavailable(detail: &str) -> Response {
    retry_soon(problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "Service unavailable",
        detail,
        &[],
    ))
}

/// 429. Clients read the time to wait from the header or from the body.
pub(crate) fn throttled(detail: &str, seconds: u64) -> Response {
    throttled_with(detail, seconds, None)
}

/// The same for the list of models, which clients of OpenAI's API read too.
pub(crate) fn throttled_at_models(detail: &str, seconds: u64) -> Response {
    let error = OpenAiError::rate_limited(detail, seconds);
    throttled_with(detail, seconds, Some(error.object()))
}

fn throttled_with(detail: &str, seconds: u64, error: Option<ErrorObject<'_>>) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let body = Problem {
        title: "Too many requests",
        detail,
        status: status.as_u16(),
        retry_after: Some(seconds),
        invalid_fields: &[],
        error,
    };
    let mut response = problem_response(status, &body);
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
    problem_response(
        status,
        &Problem {
            title,
            detail,
            status: status.as_u16(),
            retry_after: None,
            invalid_fields,
            error: None,
        },
    )
}

fn problem_response(status: StatusCode, problem: &Problem<'_>) -> Response {
    let mut response = json(
        status,
        serde_json::to_vec(problem)
            .expect("responses have string keys")
            .into(),
    );
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}
