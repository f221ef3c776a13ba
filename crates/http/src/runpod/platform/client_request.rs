//! Who asks what of which endpoint: the head of every request of a client.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use tidegate_service::Job;

use super::endpoints::Endpoint;
use super::limits::{Asked, Place};
use super::reply::ApiError;
use super::{AppState, SharedState};
use crate::access::Identity;
use crate::shared::body_limit::{BodyLimit, read_body};

/// A client that asks something of an endpoint.
pub(super) struct ClientRequest {
    pub(super) app: SharedState,
    pub(super) caller: Identity,
    /// The name of the endpoint, which may not exist.
    pub(super) endpoint: String,
    /// Of which job or batch; empty where none is named.
    pub(super) id: String,
    /// Of which request of a batch; empty where none is named.
    pub(super) request: String,
    /// What behind `/openai/`; empty everywhere else.
    pub(super) route: String,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

impl FromRequestParts<SharedState> for ClientRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, ApiError> {
        let Ok(caller) = Identity::from_request_parts(parts, app).await;
        let [endpoint, id, request, route] =
            named(parts, app, ["endpoint", "id", "request", "route"]).await?;
        Ok(Self {
            app: Arc::clone(app),
            caller,
            endpoint,
            id,
            request,
            route,
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
        })
    }
}

impl ClientRequest {
    /// The endpoint, unless too much is asked of it. To be held until it has answered.
    pub(super) fn enter(&self, asked: Asked) -> Result<EndpointAccess, ApiError> {
        let endpoint = self.app.endpoint(&self.endpoint)?;
        let workers = || endpoint.remote.worker_counts().available();
        let place =
            self.app
                .config
                .limits
                .enter(&self.caller.account, &self.endpoint, asked, workers)?;
        Ok(EndpointAccess { endpoint, place })
    }

    /// The job that is meant.
    pub(super) async fn job(&self, endpoint: &Endpoint) -> Result<Arc<Job>, ApiError> {
        self.app.find(endpoint, &self.caller, &self.id).await
    }
}

/// An endpoint that is asked something.
pub(super) struct EndpointAccess {
    endpoint: Arc<Endpoint>,
    #[expect(dead_code, reason = "it counts while it is there")]
    place: Place,
}

impl Deref for EndpointAccess {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Parts of the path by their names in the table of routes; empty where a route has none.
pub(super) async fn named<const N: usize>(
    parts: &mut Parts,
    app: &SharedState,
    names: [&str; N],
) -> Result<[String; N], ApiError> {
    let params = RawPathParams::from_request_parts(parts, app).await;
    let params = params.map_err(|error| ApiError::Unusable(error.to_string()))?;
    Ok(names.map(|name| {
        params
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.to_owned())
            .unwrap_or_default()
    }))
}

impl AppState {
    pub(super) fn endpoint(&self, name: &str) -> Result<Arc<Endpoint>, ApiError> {
        self.endpoints
            .get(name)
            .ok_or_else(|| ApiError::NoSuchEndpoint(name.chars().take(100).collect()))
    }

    pub(super) async fn body(&self, body: Body, size: usize) -> Result<Bytes, ApiError> {
        Ok(read_body(
            body,
            BodyLimit {
                max_bytes: size,
                stall_timeout: self.config.body_timeout,
            },
        )
        .await?)
    }
}
