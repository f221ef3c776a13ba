//! The responses to directors.

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidegate_core::blobs::BlobError;
use tidegate_core::director_api::{CallErrorBody, CallErrorCode};
use tidegate_core::store::StoreError;
use tidegate_service::{CallError, FileStoreError};

use crate::shared::body_limit::BodyError;
use crate::shared::response::json;

/// A 200 response with this body.
pub(super) fn ok(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => json(StatusCode::OK, body.into()),
        Err(error) => CallRefusal::Unwritable(error).into_response(),
    }
}

/// The response on unknown paths: the director is newer than this process.
pub(super) async fn no_such_path(uri: Uri) -> CallRefusal {
    CallRefusal::NoSuchPath(uri.path().to_owned())
}

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallRefusal {
    #[error(
        "wrong token of the directors; give both sides the same --token-file or TIDEGATE_DIRECTOR_TOKEN"
    )]
    WrongToken,
    #[error("no such call: `{0}`; upgrade the API before the directors")]
    NoSuchPath(String),
    #[error(transparent)]
    Body(BodyError),
    #[error("the call cannot be read: {0}")]
    Unreadable(serde_json::Error),
    #[error("the reply cannot be written: {0}")]
    Unwritable(serde_json::Error),
    #[error("the file was not received to its end: {0}")]
    Interrupted(axum::Error),
    #[error("the address of the file cannot be written")]
    UnwritableAddress,
    #[error(transparent)]
    Call(#[from] CallError),
}

impl IntoResponse for CallRefusal {
    fn into_response(self) -> Response {
        let code = match &self {
            Self::Call(CallError::Store(StoreError::Unavailable(_) | StoreError::Full(_))) => {
                Some(CallErrorCode::StoreUnavailable)
            }
            _ => None,
        };
        let status = match &self {
            Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::NoSuchPath(_) => StatusCode::NOT_FOUND,
            Self::Body(error) => error.status(),
            Self::Unreadable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unwritable(_) | Self::UnwritableAddress => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Interrupted(_) => StatusCode::BAD_REQUEST,
            Self::Call(CallError::InvalidToken) => StatusCode::FORBIDDEN,
            // A retry cannot succeed.
            Self::Call(CallError::Store(StoreError::Invalid(_))) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Call(CallError::Store(_) | CallError::Live(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Call(CallError::NoFileStore | CallError::UnknownFile) => StatusCode::NOT_FOUND,
            Self::Call(CallError::File(error)) => match error {
                FileStoreError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                FileStoreError::NoSpace | FileStoreError::Quota { .. } => {
                    StatusCode::INSUFFICIENT_STORAGE
                }
                FileStoreError::Blob(BlobError::Missing) => StatusCode::NOT_FOUND,
                FileStoreError::Io(_) | FileStoreError::Blob(_) | FileStoreError::Store(_) => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
            },
        };
        let detail = self.to_string();
        let body = serde_json::to_vec(&CallErrorBody { detail, code });
        json(status, body.expect("its keys are strings").into())
    }
}
