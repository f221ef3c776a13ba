//! The Cog face: what a container built by Cog answers, on the same paths with the same bodies.

mod docs;
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
use predictions::PathId;
use tidegate_core::JobKind;
use tidegate_service::{JobService, ServedModel};
use tokio_util::sync::CancellationToken;

use crate::access::require_admin;

use crate::replicate::CrossApiRenderer;
pub use multi_model::multi_model_routes;

/// What the face is told.
#[derive(Clone)]
pub struct Config {
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The longest that a body may make no progress.
    pub body_timeout: Duration,
    /// For the health report.
    pub build: BuildInfo,
    /// Touched when a health check finds the model ready, for Kubernetes probes.
    pub ready_file: Option<PathBuf>,
    /// Tells jobs that came by Replicate's API: callers of this one may look them up.
    pub cross_api: CrossApiRenderer,
}

/// What was built from what.
#[derive(Debug, Clone)]
pub struct BuildInfo {
    /// tidegate's own version.
    pub version: &'static str,
    /// The commit.
    pub git_sha: &'static str,
    /// When.
    pub built_at: &'static str,
}

/// The version of Cog whose answers these are.
pub(crate) const COG_VERSION: &str = "0.23.1";

struct Face {
    model: Arc<ServedModel>,
    config: Config,
    shutdown: CancellationToken,
    /// What its paths begin with for callers.
    root: String,
}

impl Face {
    /// The desk of the version that is served now.
    fn jobs(&self) -> JobService {
        self.model.jobs()
    }
}

type Shared = Arc<Face>;

/// The face. `POST /shutdown` of an administrator cancels `shutdown`.
pub fn routes(model: Arc<ServedModel>, config: Config, shutdown: CancellationToken) -> Router {
    routes_below(String::new(), model, config, shutdown)
}

/// The face of a model that callers find below `root`.
fn routes_below(
    root: String,
    model: Arc<ServedModel>,
    config: Config,
    shutdown: CancellationToken,
) -> Router {
    let face = Arc::new(Face {
        model,
        config,
        shutdown,
        root,
    });
    Router::new()
        .route("/", get(index::index))
        .route("/docs", get(docs::page))
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
        .with_state(face)
}

/// Predictions and trainings are the same machinery under two names.
fn resource(path: &str, kind: JobKind) -> Router<Shared> {
    let create =
        move |state, caller, request| predictions::create(state, kind, caller, None, request);
    let put = move |state, caller, PathId(id): PathId, request| {
        predictions::create(state, kind, caller, Some(id), request)
    };
    Router::new()
        .route(path, post(create))
        .route(&format!("{path}/{{id}}"), get(predictions::show).put(put))
        .route(&format!("{path}/{{id}}/cancel"), post(predictions::cancel))
}
