//! The responses and errors of the admin API.

use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::store::StoreError;
use tidegate_service::ReplayError;

use super::wire;
use crate::shared::response::{json, retry_soon};

/// A 200 response with this body.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    with_status(StatusCode::OK, body)
}

/// A response with this status and body.
pub(super) fn with_status(status: StatusCode, body: &impl Serialize) -> Response {
    json(
        status,
        serde_json::to_vec(body)
            .expect("the fields have string keys")
            .into(),
    )
}

/// The response on unknown paths below `/admin`.
pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::NoSuchPath(uri.path().to_owned())
}

/// The response to a method that the path does not support.
pub(crate) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoSuchMethod(method, uri.path().to_owned())
}

/// All errors of this API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("no such path: `{0}`; docs/reference/admin.md lists the paths")]
    NoSuchPath(String),
    #[error("method {0} not allowed for `{1}`; the `allow` header lists the allowed ones")]
    NoSuchMethod(Method, String),
    #[error("invalid parameter `{name}={value}`: {expected}")]
    InvalidParameter {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("there is no model `{0}`")]
    UnknownModel(String),
    #[error("there is no endpoint `{0}`")]
    UnknownEndpoint(String),
    #[error("unknown job `{0}`; it does not exist in this account, or its record has expired")]
    UnknownJob(String),
    #[error("job `{0}` has already ended ({1})")]
    AlreadyEnded(String, &'static str),
    #[error("job `{0}` cannot be canceled now: it is stored and waits for a working model")]
    NotCancelable(String),
    #[error(
        "another process owns this endpoint, so this one cannot follow the logs of its jobs; follow them by job"
    )]
    JobsRunElsewhere,
    #[error("the store is unavailable; try again later")]
    Store,
    #[error(transparent)]
    ReplayError(#[from] ReplayError),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %tidegate_core::chain(&error), "failed to read the store");
        Self::Store
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoSuchPath(_)
            | Self::UnknownModel(_)
            | Self::UnknownEndpoint(_)
            | Self::UnknownJob(_)
            | Self::ReplayError(ReplayError::Unknown(_)) => StatusCode::NOT_FOUND,
            Self::NoSuchMethod(..) => StatusCode::METHOD_NOT_ALLOWED,
            Self::InvalidParameter { .. } => StatusCode::BAD_REQUEST,
            Self::AlreadyEnded(..) | Self::NotCancelable(_) | Self::JobsRunElsewhere => {
                StatusCode::CONFLICT
            }
            Self::ReplayError(
                ReplayError::InFlight | ReplayError::NotTerminal(_) | ReplayError::Gone,
            ) => StatusCode::CONFLICT,
            Self::Store | Self::ReplayError(ReplayError::Store(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        let error = self.to_string();
        let response = with_status(status, &wire::Error { error });
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return retry_soon(response);
        }
        response
    }
}
