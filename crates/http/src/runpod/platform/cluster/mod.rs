//! The endpoints of a cluster: each is owned by one API process, which hands out its jobs. Every process accepts
//! the requests of clients and workers, and forwards those for endpoints that another process owns.
//!
//! `directory.rs` knows the owners, `forward.rs` sends a request to another process, `admin.rs` is the
//! operators' API.

mod admin;
mod directory;
mod forward;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawPathParams, Request, State};
use axum::http::HeaderValue;
use axum::http::header::RETRY_AFTER;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tidegate_core::store::Documents;
use tidegate_net::Forwarder;

pub use directory::{EndpointDirectory, EndpointPlace, EndpointPlaces, OwnedRoutes, RemoteOwner};

use super::endpoints::WorkerKeys;
use super::is_worker_path;
use super::reply::{self, ApiError};
use super::workers::{REFUSED_AFTER, key_of};
use crate::access::{Identity, Peer, require_admin, require_operator};
use forward::FORWARDED;

/// The configuration of the endpoints of a cluster.
pub struct ClusterConfig {
    /// The owners of the endpoints.
    pub directory: EndpointDirectory,
    /// Where the names of the endpoints are stored.
    pub documents: Arc<dyn Documents>,
    /// The keys of workers; `None` when workers need no key.
    pub worker_keys: Option<WorkerKeys>,
    /// The URL of the cluster for workers, without a trailing slash.
    pub base_url: String,
    /// How long a client may pause while it sends a body.
    pub body_timeout: Duration,
    /// Sends requests to other processes.
    pub forwarder: Forwarder,
}

/// The routes of the endpoints of a cluster.
pub fn cluster_routes(config: ClusterConfig) -> Router {
    let operators = Router::new()
        .route("/admin/endpoints", get(admin::list).post(admin::add))
        .route("/admin/endpoints/{endpoint}/env", get(admin::env))
        .route_layer(from_fn(require_operator));
    let admins = Router::new()
        .route("/admin/endpoints/{endpoint}/remove", post(admin::remove))
        .route_layer(from_fn(require_admin));
    Router::new()
        .route("/v2/{endpoint}/{*route}", any(dispatch))
        .merge(operators)
        .merge(admins)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(Arc::new(config))
}

/// A request to an endpoint, of a client or a worker.
async fn dispatch(
    State(app): State<Arc<ClusterConfig>>,
    params: RawPathParams,
    request: Request,
) -> Response {
    let name = endpoint_name(&params);
    if let Err(error) = app.check_worker(&name, &request) {
        tracing::warn!(target: "audit", endpoint = name, reason = %error, "worker refused");
        tokio::time::sleep(REFUSED_AFTER).await;
        return error.into_response();
    }
    app.serve(&name, request).await
}

/// The endpoint in the path.
fn endpoint_name(params: &RawPathParams) -> String {
    let endpoint = params.iter().find(|(name, _)| *name == "endpoint");
    endpoint
        .map(|(_, value)| value.to_owned())
        .unwrap_or_default()
}

impl ClusterConfig {
    /// Refuses callers of worker routes without a key, who must not learn which endpoints exist.
    fn check_worker(&self, name: &str, request: &Request) -> Result<(), ApiError> {
        let is_refused = is_worker_path(request.uri().path())
            && self
                .worker_keys
                .as_ref()
                .is_some_and(|keys| !keys.matches(name, key_of(request.headers())));
        if is_refused {
            return Err(ApiError::InvalidWorkerKey);
        }
        Ok(())
    }

    /// Serves a request to an endpoint here, or forwards it to the owner.
    async fn serve(&self, name: &str, request: Request) -> Response {
        let is_forwarded = request.headers().contains_key(FORWARDED);
        match self.directory.place(name) {
            None => ApiError::NoSuchEndpoint(name.chars().take(100).collect()).into_response(),
            Some(EndpointPlace::Here(owned)) => match owned.serve(without_params(request)).await {
                Some(response) => response,
                None => self.unavailable(Duration::ZERO),
            },
            Some(EndpointPlace::There(owner)) if !is_forwarded => {
                self.forward(name, &owner, request).await
            }
            // The other process does not know the new owner yet, or this one does not.
            Some(EndpointPlace::There(_)) => self.unavailable(Duration::ZERO),
            Some(EndpointPlace::Nowhere) => self.unavailable(Duration::ZERO),
        }
    }

    /// The response while an endpoint has no owner that answers; it will have one after this time at the
    /// latest.
    fn unavailable(&self, within: Duration) -> Response {
        self.directory.refresh();
        let mut response = ApiError::NoOwner.into_response();
        let seconds = within.as_secs() + 1;
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
        response
    }
}

/// The request without the parameters of the path that it was matched with: another router matches it again.
fn without_params(request: Request) -> Request {
    let (parts, body) = request.into_parts();
    let mut again = Request::new(body);
    *again.method_mut() = parts.method;
    *again.uri_mut() = parts.uri;
    *again.version_mut() = parts.version;
    *again.headers_mut() = parts.headers;
    if let Some(identity) = parts.extensions.get::<Identity>() {
        again.extensions_mut().insert(identity.clone());
    }
    if let Some(peer) = parts.extensions.get::<Peer>() {
        again.extensions_mut().insert(*peer);
    }
    again
}
