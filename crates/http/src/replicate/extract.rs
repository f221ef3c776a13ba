//! Extractors for requests that create or change something: the caller and the body, read within
//! its limits.
//!
//! Handlers take one of them as their last argument. Both read the whole body before the handler
//! looks up models and deployments: these may change while a body arrives.

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

/// The largest body of a request that creates or changes a resource other than a job, in bytes.
const MAX_DESCRIPTION: usize = 256 * 1024;

/// A request that creates a job.
pub(super) struct CreateJobRequest {
    pub(super) caller: Identity,
    pub(super) client: ClientProfile,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl CreateJobRequest {
    /// Parses the body. An absent body is an empty object.
    pub(super) fn read(&self) -> Result<Create<'_>, ApiError> {
        Ok(parse_object(&self.body)?.unwrap_or_default())
    }
}

impl FromRequest<Arc<AppState>> for CreateJobRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<AppState>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let Ok(caller) = Identity::from_request_parts(&mut parts, state).await;
        let Ok(client) = ClientProfile::from_request_parts(&mut parts, state).await;
        let Parts { headers, .. } = parts;
        let bounds = BodyLimit::of_flags(state.config.max_body, state.config.body_timeout);
        let body = read_json_body(&headers, body, bounds).await?;
        Ok(Self {
            caller,
            client,
            headers,
            body,
        })
    }
}

/// The JSON body of a request that creates or changes a resource.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<AppState>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<AppState>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let flags = BodyLimit::of_flags(state.config.max_body, state.config.body_timeout);
        let bounds = if state.config.max_body < MAX_DESCRIPTION {
            flags
        } else {
            BodyLimit {
                max_bytes: MAX_DESCRIPTION,
                max_bytes_flag: None,
                ..flags
            }
        };
        let body = read_json_body(&parts.headers, body, bounds).await?;
        Ok(Self(parse_object(&body)?.unwrap_or_default()))
    }
}
