//! OpenAI's HTTP API for the models of this server: text generation and embeddings.
//!
//! Parsing and rendering are pure functions on the types of `tidegate_core::inference`, so that other
//! parts of the program can translate between this API and foreign backends. `GET /v1/models` is a route
//! of Replicate's API, whose document has the fields of both.

pub(crate) mod error;
mod handlers;
mod models;
pub(crate) mod parse_embeddings;
pub(crate) mod parse_text;
pub(crate) mod render;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tidegate_service::ModelRegistry;

pub(crate) use handlers::{chat, completions, embeddings, method_not_allowed};
pub(crate) use models::{OpenAiModel, model_response};

use crate::rate_limits::{RateLimits, limited};

/// The settings of this API.
#[derive(Clone)]
pub struct Config {
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The longest time without progress while a request body is read.
    pub body_timeout: Duration,
    /// The rate limits of each account.
    pub limits: Arc<RateLimits>,
}

pub(crate) struct AppState {
    pub(crate) models: ModelRegistry,
    pub(crate) config: Config,
}

/// Whether errors on this path have the format of this API.
pub(crate) fn is_own_path(path: &str) -> bool {
    let own = ["/v1/chat/", "/v1/completions", "/v1/embeddings", "/ai/v1/"];
    let is_model = path
        .strip_prefix("/v1/models/")
        .is_some_and(|id| !id.contains('/'));
    let is_below_account = path
        .strip_prefix("/client/v4/accounts/")
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, rest)| rest.starts_with("ai/v1/"));
    is_model || is_below_account || own.iter().any(|prefix| path.starts_with(prefix))
}

/// The routes of this API.
pub fn routes(models: ModelRegistry, config: Config) -> Router {
    let state = Arc::new(AppState { models, config });
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/embeddings", post(embeddings))
        .method_not_allowed_fallback(method_not_allowed);
    limited(routes, &state.config.limits).with_state(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_api() {
        for own in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/models/a%2Fb",
            "/client/v4/accounts/x/ai/v1/embeddings",
            "/ai/v1/chat/completions",
        ] {
            assert!(is_own_path(own), "{own}");
        }
        for other in [
            "/v1/models",
            "/v1/models/a/b",
            "/v1/predictions",
            "/client/v4/accounts/x/ai/run/y",
        ] {
            assert!(!is_own_path(other), "{other}");
        }
    }
}
