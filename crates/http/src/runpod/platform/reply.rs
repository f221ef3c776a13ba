//! The error responses of the platform API.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tidegate_core::Refusal;
use tidegate_remote::ReportRejection;

use super::clients::{MAX_RUN, MAX_RUNSYNC};
use super::endpoints::{OpenEndpointError, RemoveEndpointError};
use super::limits::RateLimitExceeded;
use crate::request_metrics::RejectReason;
use crate::shared::body_limit::BodyError;
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::BodyParseError;
use crate::shared::response::{json, retry_soon};

/// Every error of a request to the platform API.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("no route for `{0}`")]
    NoSuchPath(String),
    #[error("method {0} not allowed for `{1}`; see the header `allow`")]
    NoSuchMethod(Method, String),
    #[error("there is no endpoint `{0}`")]
    NoSuchEndpoint(String),
    #[error("there is no job `{0}`, or its result is no longer kept")]
    NoSuchJob(String),
    #[error("the job is {0}; only a job that is FAILED or TIMED_OUT can be retried")]
    NotRetryable(&'static str),
    #[error("{0}")]
    InvalidRequest(String),
    #[error("there is no batch `{0}`, or it is no longer kept")]
    NoSuchBatch(String),
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    RateLimited(#[from] RateLimitExceeded),
    #[error(
        "the worker's key is not valid for this endpoint; `tidegate endpoints env` prints the valid key"
    )]
    InvalidWorkerKey,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(
        "the body is larger than {MAX_RUN} bytes, Runpod's limit for run, which cannot be raised; runsync takes up to {MAX_RUNSYNC} bytes"
    )]
    RunTooLarge,
    #[error(transparent)]
    Envelope(#[from] BodyParseError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the store is unavailable; try again later")]
    Store,
    #[error(
        "the API process that owns this endpoint does not answer, and another one takes over soon; try again"
    )]
    NoOwner,
    #[error(transparent)]
    ReportRejected(#[from] ReportRejection),
}

impl From<OpenEndpointError> for ApiError {
    fn from(error: OpenEndpointError) -> Self {
        match error {
            OpenEndpointError::Name(error) => Self::InvalidRequest(error.to_string()),
            OpenEndpointError::Store(error) => {
                tracing::error!(error = %tidegate_core::chain(&error), "failed to save endpoint");
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
                tracing::error!(error = %tidegate_core::chain(&error), "failed to remove endpoint");
                Self::Store
            }
        }
    }
}

impl ApiError {
    /// The reason for the metrics, if the service did not count it as a refusal.
    fn reason(&self) -> Option<RejectReason> {
        match self {
            Self::Body(error) => Some(error.reason()),
            Self::RunTooLarge => Some(RejectReason::BodyTooLarge),
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
            Self::RunTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Refused(refusal) => refusal_status(refusal),
            // A worker sends a report again after 5xx only.
            Self::Store | Self::NoOwner | Self::ReportRejected(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// Adds `Retry-After` and the reason for the metrics to the response.
    pub(super) fn annotate(&self, mut response: Response) -> Response {
        if let Self::RateLimited(exceeded) = self {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(exceeded.retry_after()));
        }
        if matches!(self, Self::Store | Self::Refused(Refusal::StoreUnavailable)) {
            response = retry_soon(response);
        }
        match self.reason() {
            Some(reason) => reason.tag(response),
            None => response,
        }
    }
}

fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::AtCapacity | Refusal::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
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

/// The `status` of an error response. The asyncio client reads only this field and polls until it is
/// a terminal status.
fn status_text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::TOO_MANY_REQUESTS => "THROTTLED",
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => "UNAVAILABLE",
        _ => "FAILED",
    }
}

/// The response to a request without a valid token.
pub(crate) fn unauthenticated(reason: &str) -> Response {
    access_denied(StatusCode::UNAUTHORIZED, reason)
}

/// The response to a request that the server does not accept from this client.
pub(crate) fn forbidden(reason: &str) -> Response {
    access_denied(StatusCode::FORBIDDEN, reason)
}

fn access_denied(status: StatusCode, reason: &str) -> Response {
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

/// The response for unknown paths.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::NoSuchPath(uri.path().chars().take(200).collect())
}

/// The response to a method that the path does not support.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoSuchMethod(method, uri.path().chars().take(200).collect())
}
