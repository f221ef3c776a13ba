//! Replicate's HTTP API for the models of this server, so that Replicate's clients work unchanged.

mod account;
mod catalog;
mod client_profile;
mod cross_api;
mod data_uris;
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
use axum::middleware::from_fn;
use axum::routing::{any, get, post};
use tidegate_core::store::Documents;
use tidegate_service::{ModelRegistry, WebhookSecrets};
use url::Url;

pub use account::ensure_webhook_secret;
pub use cross_api::CrossApiRenderer;
pub(crate) use cross_api::CrossApiView;
pub use file_links::FileLinks;
pub use render::{PredictionRenderer, RenderAborted};

use self::jobs::{PredictionResource, TrainingResource};
use crate::rate_limits::{RateLimits, limited};

/// Streams and downloads need no token: their URLs cannot be guessed, and clients open them without
/// one.
pub(crate) fn is_open(path: &str) -> bool {
    let name = path
        .strip_prefix("/v1/files/")
        .and_then(|rest| rest.split_once('/'))
        .map(|(_, name)| name);
    path.starts_with("/v1/streams/")
        || name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The prefix of every path of this API.
pub(crate) const ROOT: &str = "/v1/";
/// The list of models, which is also a resource of OpenAI's API.
pub(crate) const MODELS_PATH: &str = "/v1/models";

/// The configuration of this API.
pub struct Config {
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The longest time without progress while a request body is read.
    pub body_timeout: Duration,
    /// The largest file that a client may upload, in bytes.
    pub max_file: u64,
    /// The URL under which all clients reach this server. Without it, the `Host` header of each
    /// request decides.
    pub public_url: Option<Url>,
    /// The URL of the address that the server listens on.
    pub own_url: Url,
    /// Renders jobs as Replicate's JSON.
    pub renderer: PredictionRenderer,
    /// The secrets that sign webhooks.
    pub webhook_secrets: WebhookSecrets,
    /// Stores deployments and the models that users create; in memory if the server has no data
    /// folder.
    pub documents: Arc<dyn Documents>,
    /// The rate limits of each account.
    pub limits: Arc<RateLimits>,
    /// Stored files and their download URLs; `None` if the server stores no files.
    pub files: Option<Arc<FileLinks>>,
}

struct AppState {
    models: ModelRegistry,
    config: Config,
}

/// The routes of this API.
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
        // Not the id of a file: ids are generated and never `streams`.
        .route("/v1/files/streams/{token}", get(stream::follow))
        .route("/v1/files/{id}/{name}", get(download::download))
        .route(
            MODELS_PATH,
            get(models::list)
                .post(user_models::create)
                .fallback(models::search),
        )
        // Only clients of OpenAI's API name a model in one segment.
        .route("/v1/models/{id}", get(models::show_for_openai))
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
        .route("/v1/{*rest}", any(reply::unknown_path))
        .method_not_allowed_fallback(reply::method_not_allowed);
    let routes = routes.layer(from_fn(reply::reject_non_utf8_paths));
    limited(routes, &state.config.limits).with_state(state)
}
