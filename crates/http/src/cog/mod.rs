//! The Cog API: the paths and bodies of a container built by Cog.

mod example;
mod example_text;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod health;
mod index;
mod multi_model;
mod predictions;
pub(crate) mod reply;
mod stream;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use bytes::Bytes;
use predictions::PathId;
use tidegate_core::JobKind;
use tidegate_service::{JobService, ServedModel, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::access::require_admin;
use crate::replicate::CrossApiRenderer;
use crate::runpod::platform::EndpointRegistry;
pub use example::{ExampleRequest, resolve_reference};
pub(crate) use health::status as health_name;
pub use multi_model::{HandlerRoutes, multi_model_routes};

/// The settings of the Cog API.
#[derive(Clone)]
pub struct Config {
    /// The largest body, in bytes.
    pub max_body: usize,
    /// How long a body may make no progress.
    pub body_timeout: Duration,
    /// Shown in the health report.
    pub build: BuildInfo,
    /// Created when a health check finds the model ready, for Kubernetes probes.
    pub ready_file: Option<PathBuf>,
    /// Renders jobs that were created by Replicate's API: clients of this API may look them up.
    pub cross_api: CrossApiRenderer,
    /// The endpoints of the server, which its index names.
    pub endpoints: Option<EndpointRegistry>,
}

/// The version of this build and its source.
#[derive(Debug, Clone)]
pub struct BuildInfo {
    /// The version of tidegate.
    pub version: &'static str,
    /// The Git commit.
    pub git_sha: &'static str,
    /// The time of the build.
    pub built_at: &'static str,
}

/// The version of Cog whose API this is.
pub(crate) const COG_VERSION: &str = "0.23.1";

/// The state of the Cog API of one model.
struct AppState {
    model: Arc<ServedModel>,
    config: Config,
    shutdown: CancellationToken,
    /// The path prefix that clients use.
    root: String,
}

impl AppState {
    /// The job service of the version that is served now.
    fn jobs(&self) -> JobService {
        self.model.jobs()
    }
}

/// A prediction as JSON, as in the response to a client that waited for its end.
pub fn prediction_json(job: &Snapshot) -> Bytes {
    reply::result_body(job)
}

/// The routes of the API for one model, which are also below `/models/OWNER/NAME` and `/models/NAME` as on a
/// server with several. `POST /shutdown` of an administrator cancels `shutdown`.
pub fn routes(model: Arc<ServedModel>, config: Config, shutdown: CancellationToken) -> Router {
    let below = |name: &str| {
        let root = format!("/models/{name}");
        let (model, config) = (Arc::clone(&model), config.clone());
        let routes = routes_below(root.clone(), model, config, shutdown.clone());
        Router::new().nest(&root, routes)
    };
    let named = match model.name().split_once('/') {
        // `/models/NAME/NAME` would be ambiguous.
        Some((owner, name)) if owner != name => below(model.name()).merge(below(name)),
        Some(_) | None => below(model.name()),
    };
    routes_below(String::new(), model, config, shutdown).merge(named)
}

/// The routes for a model whose paths start with `root`.
fn routes_below(
    root: String,
    model: Arc<ServedModel>,
    config: Config,
    shutdown: CancellationToken,
) -> Router {
    let state = Arc::new(AppState {
        model,
        config,
        shutdown,
        root,
    });
    Router::new()
        .route("/", get(index::index))
        .route("/docs", get(index::docs))
        .route("/health-check", get(health::check))
        .route("/openapi.json", get(index::openapi))
        .route(
            "/shutdown",
            post(index::shutdown).route_layer(from_fn(require_admin)),
        )
        .merge(resource("/predictions", JobKind::Prediction))
        .merge(resource("/trainings", JobKind::Training))
        .fallback(reply::no_such_path)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(state)
}

/// Predictions and trainings have the same routes under two names.
fn resource(path: &str, kind: JobKind) -> Router<Arc<AppState>> {
    let create =
        move |state, client, request| predictions::create(state, kind, client, None, request);
    let put = move |state, client, PathId(id): PathId, request| {
        predictions::create(state, kind, client, Some(id), request)
    };
    Router::new()
        .route(path, post(create))
        .route(&format!("{path}/{{id}}"), get(predictions::show).put(put))
        .route(&format!("{path}/{{id}}/cancel"), post(predictions::cancel))
}
