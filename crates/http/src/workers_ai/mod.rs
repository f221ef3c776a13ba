//! The REST API of Cloudflare Workers AI for the models of this server.
//!
//! Parsing and rendering are pure functions on the types of `tidegate_core::inference`, so that other
//! parts of the program can translate between this API and foreign backends.

mod access;
pub(crate) mod batch;
mod catalog;
pub(crate) mod error;
pub(crate) mod parse;
pub(crate) mod render;
mod run;
pub(crate) mod single_file;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tidegate_core::store::Documents;
use tidegate_service::ModelRegistry;

use crate::openai;
use crate::rate_limits::{RateLimits, limited};
use batch::WorkersAiBatches;
use error::WorkersAiError;

/// Whether errors on this path have the format of this API.
pub(crate) fn is_own_path(path: &str) -> bool {
    path.starts_with("/client/v4/") || path.starts_with("/ai/run/")
}

/// The settings of this API.
#[derive(Clone)]
pub struct Config {
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The longest time without progress while a request body is read.
    pub body_timeout: Duration,
    /// Stores batches; `None` if the server has no store that survives a restart.
    pub documents: Option<Arc<dyn Documents>>,
    /// The rate limits of each account.
    pub limits: Arc<RateLimits>,
}

struct AppState {
    models: ModelRegistry,
    config: Config,
    /// `None` without a store that survives a restart.
    batches: Option<Arc<WorkersAiBatches>>,
}

/// The routes of this API.
pub fn routes(models: ModelRegistry, config: Config) -> Router {
    let openai_config = openai::Config {
        max_body: config.max_body,
        body_timeout: config.body_timeout,
        limits: Arc::clone(&config.limits),
    };
    let openai_state = Arc::new(openai::AppState {
        models: models.clone(),
        config: openai_config,
    });
    let openai_routes = Router::new()
        .route(&at("v1/chat/completions"), post(openai::chat))
        .route(&at("v1/completions"), post(openai::completions))
        .route(&at("v1/embeddings"), post(openai::embeddings))
        .route_layer(from_fn(access::check_account_for_openai))
        // Without an account in the path it is that of the token.
        .route("/ai/v1/chat/completions", post(openai::chat))
        .route("/ai/v1/completions", post(openai::completions))
        .route("/ai/v1/embeddings", post(openai::embeddings))
        .method_not_allowed_fallback(openai::method_not_allowed)
        .with_state(openai_state);
    let limits = Arc::clone(&config.limits);
    let batches = config.documents.clone().map(WorkersAiBatches::new);
    let state = Arc::new(AppState {
        models,
        config,
        batches: batches.map(Arc::new),
    });
    let routes = Router::new()
        .route(&at("run/{*model}"), post(run::run))
        .route(&at("models/search"), get(catalog::search))
        .route(&at("models/schema"), get(catalog::schema))
        .route_layer(from_fn(access::check_account))
        .route("/ai/run/{*model}", post(run::run))
        .route("/client/v4/{*rest}", any(no_such_path))
        .method_not_allowed_fallback(no_such_method)
        .with_state(state)
        .merge(openai_routes);
    limited(routes, &limits)
}

fn at(path: &str) -> String {
    format!("/client/v4/accounts/{{account}}/ai/{path}")
}

async fn no_such_path(uri: Uri) -> Response {
    WorkersAiError::no_such_path(uri.path()).into_response()
}

async fn no_such_method(method: Method, uri: Uri) -> Response {
    WorkersAiError::no_such_method(method.as_str(), uri.path()).into_response()
}
