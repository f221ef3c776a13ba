//! What the operator's face says, and with which status.

use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::store::StoreError;
use tidegate_service::ReplayError;

use super::wire;
use crate::shared::response::json;

/// What was asked for.
pub(super) fn shown(body: &impl Serialize) -> Response {
    said(StatusCode::OK, body)
}

/// What was asked for, with another status.
pub(super) fn said(status: StatusCode, body: &impl Serialize) -> Response {
    json(
        status,
        serde_json::to_vec(body)
            .expect("our fields have string keys")
            .into(),
    )
}

/// The answer on paths below `/admin` that nobody knows.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::NoSuchPath(uri.path().to_owned())
}

/// The answer to methods that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoSuchMethod(method, uri.path().to_owned())
}

/// Everything that can be wrong with a request to this face.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("there is nothing at `{0}`; docs/reference/admin.md lists what there is")]
    NoSuchPath(String),
    #[error("`{1}` cannot be asked with {0}; see the header `allow`")]
    NoSuchMethod(Method, String),
    #[error("`{name}={value}` cannot be read: {expected}")]
    InvalidParameter {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("there is no job `{0}` there, or it was over too long ago to be kept")]
    UnknownJob(String),
    #[error("the job `{0}` is over already ({1})")]
    Over(String, &'static str),
    #[error(
        "the job `{0}` cannot be canceled now: it is written down and waits for a model that works"
    )]
    LeftInStore(String),
    #[error("the store cannot be read now; try again later")]
    Store,
    #[error(transparent)]
    ReplayError(#[from] ReplayError),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %tidegate_core::chain(&error), "the store could not be read for an operator");
        Self::Store
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoSuchPath(_)
            | Self::UnknownJob(_)
            | Self::ReplayError(ReplayError::Unknown(_)) => StatusCode::NOT_FOUND,
            Self::NoSuchMethod(..) => StatusCode::METHOD_NOT_ALLOWED,
            Self::InvalidParameter { .. } => StatusCode::BAD_REQUEST,
            Self::Over(..) | Self::LeftInStore(_) => StatusCode::CONFLICT,
            Self::ReplayError(
                ReplayError::OnItsWay | ReplayError::NotTheLast(_) | ReplayError::Gone,
            ) => StatusCode::CONFLICT,
            Self::Store | Self::ReplayError(ReplayError::Store(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        said(
            status,
            &wire::Error {
                error: self.to_string(),
            },
        )
    }
}
