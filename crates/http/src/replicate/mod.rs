//! The Replicate state: its public API for the models that this server has, so that its clients work
//! unchanged.

mod account;
mod catalog;
mod client_profile;
mod cross_api;
mod deployments;
mod documents;
mod download;
mod extract;
mod file_links;
mod files;
mod job_list;
mod jobs;
mod models;
mod origin;
mod paging;
mod predictions;
mod range;
mod rate_limits;
mod render;
pub(crate) mod reply;
mod stream;
mod trained_versions;
mod trainings;
mod user_models;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{any, get, post};
use tidegate_core::store::Documents;
use tidegate_service::{ModelRegistry, Secrets};
use url::Url;

pub use account::ensure_webhook_secret;
pub use cross_api::CrossApiRenderer;
pub(crate) use cross_api::CrossApiView;
pub use file_links::FileLinks;
pub use rate_limits::{Rate, RateLimits};
pub use render::{PredictionRenderer, RenderAborted};

use self::jobs::{PredictionResource, TrainingResource};

/// StreamSupport and downloads need no token: their addresses cannot be guessed, and clients open them without one.
pub(crate) fn is_open(path: &str) -> bool {
    let name = path
        .strip_prefix("/v1/files/")
        .and_then(|rest| rest.split_once('/'))
        .map(|(_, name)| name);
    path.starts_with("/v1/streams/")
        || name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// Everything of this face is below it.
pub(crate) const ROOT: &str = "/v1/";

/// What the face is told.
pub struct Config {
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The longest that a body may make no progress.
    pub body_timeout: Duration,
    /// How everybody reaches this server; without it, each caller's own words for it are used.
    pub public_url: Option<Url>,
    /// The address that is listened on.
    pub own_url: Url,
    /// How jobs are written.
    pub renderer: PredictionRenderer,
    /// Sign webhooks.
    pub webhook_secrets: Secrets,
    /// Where deployments and the models that callers make are kept; without a place to write, in memory.
    pub documents: Arc<dyn Documents>,
    /// How much each account may ask.
    pub limits: RateLimits,
    /// The files that are kept, and their addresses; without it there are none.
    pub files: Option<Arc<FileLinks>>,
}

struct AppState {
    models: ModelRegistry,
    config: Config,
}

/// The state.
pub fn routes(models: ModelRegistry, config: Config) -> Router {
    let state = Arc::new(AppState { models, config });
    let routes = Router::new()
        .route(
            "/v1/predictions",
            get(jobs::list::<PredictionResource>).post(predictions::create),
        )
        .route(
            "/v1/predictions/{id}",
            get(jobs::show::<PredictionResource>),
        )
        .route(
            "/v1/predictions/{id}/cancel",
            post(jobs::cancel::<PredictionResource>),
        )
        .route("/v1/trainings", get(jobs::list::<TrainingResource>))
        .route("/v1/trainings/{id}", get(jobs::show::<TrainingResource>))
        .route(
            "/v1/trainings/{id}/cancel",
            post(jobs::cancel::<TrainingResource>),
        )
        .route("/v1/streams/{token}", get(stream::follow))
        .route("/v1/files", get(files::list).post(files::create))
        .route("/v1/files/{id}", get(files::show).delete(files::remove))
        // No file has such an id.
        .route("/v1/files/streams/{token}", get(stream::follow))
        .route("/v1/files/{id}/{name}", get(download::download))
        .route(
            "/v1/models",
            get(models::list)
                .post(user_models::create)
                .fallback(models::search),
        )
        .route(
            "/v1/models/{owner}/{name}",
            get(models::show)
                .patch(user_models::update)
                .delete(user_models::remove),
        )
        .route("/v1/models/{owner}/{name}/examples", get(catalog::examples))
        .route("/v1/models/{owner}/{name}/readme", get(catalog::readme))
        .route(
            "/v1/models/{owner}/{name}/predictions",
            post(predictions::create_for_model),
        )
        .route("/v1/models/{owner}/{name}/versions", get(models::versions))
        .route(
            "/v1/models/{owner}/{name}/versions/{version}",
            get(models::version).delete(trained_versions::remove),
        )
        .route(
            "/v1/models/{owner}/{name}/versions/{version}/trainings",
            post(trainings::create),
        )
        .route(
            "/v1/deployments",
            get(deployments::list).post(deployments::create),
        )
        .route(
            "/v1/deployments/{owner}/{name}",
            get(deployments::show)
                .patch(deployments::update)
                .delete(deployments::remove),
        )
        .route(
            "/v1/deployments/{owner}/{name}/releases",
            get(deployments::releases),
        )
        .route(
            "/v1/deployments/{owner}/{name}/predictions",
            post(deployments::create_prediction),
        )
        .route("/v1/account", get(account::show))
        .route("/v1/webhooks/default/secret", get(account::webhook_secret))
        .route("/v1/hardware", get(catalog::hardware))
        .route("/v1/collections", get(catalog::collections))
        .route("/v1/collections/{slug}", get(catalog::collection))
        .route("/v1/search", get(catalog::search))
        .route("/v1/{*rest}", any(reply::no_such_path))
        .method_not_allowed_fallback(reply::no_such_method);
    let routes = routes.layer(from_fn(reply::only_text));
    // Who sets no limits does not pay for them.
    let routes = if state.config.limits.are_none() {
        routes
    } else {
        routes.layer(from_fn_with_state(Arc::clone(&state), rate_limits::check))
    };
    routes.with_state(state)
}
