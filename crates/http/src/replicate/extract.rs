//! What comes with a request that makes or changes something: whose it is and its body, read within its limits.
//!
//! Handlers take one of the two as their last argument. Both read the whole body before the handler looks for
//! what it is about: while a body comes, a model may get another version and a deployment another release.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::AppState;
use super::client_profile::ClientProfile;
use super::reply::ApiError;
use super::wire::Create;
use crate::access::Identity;
use crate::shared::body_limit::{BodyLimit, read_json_body};
use crate::shared::parse_body::parse_object;

/// The largest body that describes a thing, in bytes.
const MAX_DESCRIPTION: usize = 256 * 1024;

/// An order for a job.
pub(super) struct CreateRequest {
    pub(super) caller: Identity,
    pub(super) reader: ClientProfile,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl CreateRequest {
    /// What the body says; everything is missing in one that is not there.
    pub(super) fn read(&self) -> Result<Create<'_>, ApiError> {
        Ok(parse_object(&self.body)?.unwrap_or_default())
    }
}

impl FromRequest<Arc<AppState>> for CreateRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<AppState>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let Ok(caller) = Identity::from_request_parts(&mut parts, state).await;
        let Ok(reader) = ClientProfile::from_request_parts(&mut parts, state).await;
        let Parts { headers, .. } = parts;
        let bounds = BodyLimit {
            max_bytes: state.config.max_body,
            stall_timeout: state.config.body_timeout,
        };
        let body = read_json_body(&headers, body, bounds).await?;
        Ok(Self {
            caller,
            reader,
            headers,
            body,
        })
    }
}

/// What a caller says about a thing that it makes or changes.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<AppState>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<AppState>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bounds = BodyLimit {
            max_bytes: state.config.max_body.min(MAX_DESCRIPTION),
            stall_timeout: state.config.body_timeout,
        };
        let body = read_json_body(&parts.headers, body, bounds).await?;
        Ok(Self(parse_object(&body)?.unwrap_or_default()))
    }
}
