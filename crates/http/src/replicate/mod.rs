//! The Replicate face: its public API for the one model that this server has, so that its clients work
//! unchanged. Deployments are not here; their paths answer 404.

mod abroad;
mod account;
mod catalog;
mod download;
mod files;
mod links;
mod list;
mod models;
mod origin;
mod predictions;
mod range;
pub(crate) mod reply;
mod stream;
mod trainings;
mod voice;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get, post};
use jiff::Timestamp;
use tidegate_core::store::Documents;
use tidegate_service::{Jobs, Secrets};
use url::Url;

pub use abroad::Abroad;
pub(crate) use abroad::Teller;
pub use account::resume_secret;
pub use links::Links;
pub use voice::{Aborted, Voice};

/// Streams and downloads need no token: their addresses cannot be guessed, and clients open them without one.
pub(crate) fn is_open(path: &str) -> bool {
    let name = path.strip_prefix("/v1/files/").and_then(|rest| rest.split_once('/')).map(|(_, name)| name);
    path.starts_with("/v1/streams/") || name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
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
    pub voice: Voice,
    /// When the model's files were changed last.
    pub model_created_at: Timestamp,
    /// Sign webhooks.
    pub webhook_secrets: Secrets,
    /// Where a secret is kept that nobody has configured.
    pub documents: Option<Arc<dyn Documents>>,
    /// The files that are kept, and their addresses; without it there are none.
    pub files: Option<Arc<Links>>,
}

struct Face {
    jobs: Jobs,
    config: Config,
}

type Shared = Arc<Face>;

/// The face.
pub fn routes(jobs: Jobs, config: Config) -> Router {
    let face = Arc::new(Face { jobs, config });
    Router::new()
        .route("/v1/predictions", get(predictions::list).post(predictions::create))
        .route("/v1/predictions/{id}", get(predictions::show))
        .route("/v1/predictions/{id}/cancel", post(predictions::cancel))
        .route("/v1/trainings", get(trainings::list))
        .route("/v1/trainings/{id}", get(trainings::show))
        .route("/v1/trainings/{id}/cancel", post(trainings::cancel))
        .route("/v1/streams/{token}", get(stream::follow))
        .route("/v1/files", get(files::list).post(files::create))
        .route("/v1/files/{id}", get(files::show).delete(files::remove))
        .route("/v1/files/{id}/{name}", get(download::download))
        .route("/v1/models", get(models::list).fallback(models::search))
        .route("/v1/models/{owner}/{name}", get(models::show))
        .route("/v1/models/{owner}/{name}/predictions", post(predictions::create_for_model))
        .route("/v1/models/{owner}/{name}/versions", get(models::versions))
        .route("/v1/models/{owner}/{name}/versions/{version}", get(models::version))
        .route("/v1/models/{owner}/{name}/versions/{version}/trainings", post(trainings::create))
        .route("/v1/account", get(account::show))
        .route("/v1/webhooks/default/secret", get(account::webhook_secret))
        .route("/v1/hardware", get(catalog::hardware))
        .route("/v1/collections", get(catalog::collections))
        .route("/v1/{*rest}", any(reply::no_such_path))
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(face)
}
