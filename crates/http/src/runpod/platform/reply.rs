//! What is answered when something is wrong.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tidegate_core::Refusal;

use super::endpoints::{OpenEndpointError, RemoveEndpointError};
use super::limits::RateLimitExceeded;
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::BodyParseError;
use crate::shared::response::json;

/// Everything that can be wrong with a request to this app.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("there is nothing at `{0}`")]
    NoSuchPath(String),
    #[error("`{1}` cannot be asked with {0}; see the header `allow`")]
    NoSuchMethod(Method, String),
    #[error("there is no endpoint `{0}` here")]
    NoSuchEndpoint(String),
    #[error("there is no job `{0}` here, or it was over too long ago to be kept")]
    NoSuchJob(String),
    #[error("the job is {0}; only one that is FAILED or TIMED_OUT can be tried again")]
    NotRetryable(&'static str),
    #[error("{0}")]
    InvalidRequest(String),
    #[error("there is no batch `{0}` here, or it was over too long ago to be kept")]
    NoSuchBatch(String),
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    RateLimited(#[from] RateLimitExceeded),
    #[error(
        "the worker's key does not fit this endpoint; `tidegate endpoints env` prints the one that does"
    )]
    InvalidWorkerKey,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Envelope(#[from] BodyParseError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the store cannot be used now; try again later")]
    Store,
}

impl From<OpenEndpointError> for ApiError {
    fn from(error: OpenEndpointError) -> Self {
        match error {
            OpenEndpointError::Name(error) => Self::InvalidRequest(error.to_string()),
            OpenEndpointError::Store(error) => {
                tracing::error!(error = %tidegate_core::chain(&error), "an endpoint could not be kept");
                Self::Store
            }
        }
    }
}

impl From<RemoveEndpointError> for ApiError {
    fn from(error: RemoveEndpointError) -> Self {
        match error {
            RemoveEndpointError::Unknown(name) => Self::NoSuchEndpoint(name),
            RemoveEndpointError::InUse(..) => Self::Conflict(error.to_string()),
            RemoveEndpointError::JobsNotEnding(_) | RemoveEndpointError::Store(_) => {
                tracing::error!(error = %tidegate_core::chain(&error), "an endpoint could not be removed");
                Self::Store
            }
        }
    }
}

impl ApiError {
    /// What it is counted as, if it is none of the desk's refusals.
    fn reason(&self) -> Option<RejectReason> {
        match self {
            Self::Body(error) => Some(error.reason()),
            Self::RateLimited(_) => Some(RejectReason::RateLimited),
            Self::InvalidWorkerKey => Some(RejectReason::NoToken),
            _ => None,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath(_)
            | Self::NoSuchEndpoint(_)
            | Self::NoSuchJob(_)
            | Self::NoSuchBatch(_) => StatusCode::NOT_FOUND,
            Self::NoSuchMethod(..) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotRetryable(_) | Self::InvalidRequest(_) | Self::Envelope(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::InvalidWorkerKey => StatusCode::UNAUTHORIZED,
            Self::Body(error) => error.status(),
            Self::Refused(refusal) => refusal_status(refusal),
            Self::Store => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The answer, which says when to ask again if that is known, and what it is counted as.
    pub(super) fn annotate(&self, mut response: Response) -> Response {
        if let Self::RateLimited(exceeded) = self {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(exceeded.retry_after()));
        }
        match self.reason() {
            Some(reason) => reason.tag(response),
            None => response,
        }
    }
}

fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::AtCapacity => StatusCode::TOO_MANY_REQUESTS,
        Refusal::InvalidInput(_)
        | Refusal::BadWebhook { .. }
        | Refusal::InputDiffers(_)
        | Refusal::NotStreaming => StatusCode::BAD_REQUEST,
        Refusal::IdInUse(_) => StatusCode::CONFLICT,
        Refusal::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::NotReady { .. } | Refusal::StoreUnavailable | Refusal::Closing => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// What is ok_json in the place of a job's state. The asyncio client looks at nothing else, and asks again until it
/// is one of those of a job that is over.
fn status_text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "THROTTLED",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => "UNAVAILABLE",
        _ => "FAILED",
    }
}

/// The answer to callers without a token that counts.
pub(crate) fn unauthenticated(reason: &str) -> Response {
    let status = StatusCode::UNAUTHORIZED;
    json(
        status,
        JsonObjectWriter::with_capacity(reason.len())
            .field("status", status_text(status))
            .field("error", reason)
            .finish(),
    )
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = self.to_string();
        let mut body = JsonObjectWriter::with_capacity(error.len());
        if let Self::NoSuchJob(id) = &self {
            body.field("id", id);
        }
        let status = self.status();
        self.annotate(json(
            status,
            body.field("status", status_text(status))
                .field("error", &error)
                .finish(),
        ))
    }
}

/// The answer on paths that nobody knows.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::NoSuchPath(uri.path().chars().take(200).collect())
}

/// The answer to methods that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoSuchMethod(method, uri.path().chars().take(200).collect())
}
