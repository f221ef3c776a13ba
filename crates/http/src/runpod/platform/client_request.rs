//! The extractor of every client request: identity, path parameters, and the endpoint's rate limits.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use tidegate_service::Job;

use super::AppState;
use super::endpoints::Endpoint;
use super::limits::{RequestKind, RequestPermit};
use super::reply::ApiError;
use crate::access::Identity;
use crate::shared::body_limit::{BodyLimit, read_body};

/// A client's request to an endpoint.
pub(super) struct ClientRequest {
    pub(super) app: Arc<AppState>,
    pub(super) caller: Identity,
    /// The name of the endpoint, which may not exist.
    pub(super) endpoint: String,
    /// The id of the job or batch; empty on other routes.
    pub(super) id: String,
    /// The id of a batch's request; empty on other routes.
    pub(super) request_id: String,
    /// The path after `/openai/`; empty on other routes.
    pub(super) route: String,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

impl FromRequestParts<Arc<AppState>> for ClientRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, ApiError> {
        let Ok(caller) = Identity::from_request_parts(parts, app).await;
        let [endpoint, id, request_id, route] =
            path_params(parts, app, ["endpoint", "id", "request", "route"]).await?;
        Ok(Self {
            app: Arc::clone(app),
            caller,
            endpoint,
            id,
            request_id,
            route,
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
        })
    }
}

impl ClientRequest {
    /// The endpoint, unless a rate limit is exceeded. Hold it until the response is ready.
    pub(super) fn access_endpoint(&self, kind: RequestKind) -> Result<EndpointAccess, ApiError> {
        let endpoint = self.app.endpoint(&self.endpoint)?;
        let workers = || endpoint.remote.worker_counts().available();
        let permit =
            self.app
                .config
                .limits
                .acquire(&self.caller.account, &self.endpoint, kind, workers)?;
        Ok(EndpointAccess { endpoint, permit })
    }

    /// The job in the path.
    pub(super) async fn job(&self, endpoint: &Endpoint) -> Result<Arc<Job>, ApiError> {
        self.app.find(endpoint, &self.caller, &self.id).await
    }
}

/// An endpoint with a permit for one request.
pub(super) struct EndpointAccess {
    endpoint: Arc<Endpoint>,
    #[expect(dead_code, reason = "held for its Drop")]
    permit: RequestPermit,
}

impl Deref for EndpointAccess {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Path parameters by name; empty where the route has none.
pub(super) async fn path_params<const N: usize>(
    parts: &mut Parts,
    app: &Arc<AppState>,
    names: [&str; N],
) -> Result<[String; N], ApiError> {
    let params = RawPathParams::from_request_parts(parts, app).await;
    let params = params.map_err(|error| ApiError::InvalidRequest(error.to_string()))?;
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
                max_bytes_flag: None,
                stall_timeout: self.config.body_timeout,
                stall_flag: None,
            },
        )
        .await?)
    }
}
