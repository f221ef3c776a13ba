//! `GET /health-check` of a director: always 200; the body says whether it takes jobs.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use tidegate_core::health::Health;

use crate::shared::response::json;

/// The state of a director.
#[derive(Debug, Clone, Serialize)]
pub struct DirectorHealth {
    /// The name of the director.
    pub name: String,
    /// Whether it takes jobs: it is connected, and each model has been loaded, or is loaded when a job needs it.
    pub is_ready: bool,
    /// Whether an API process replied to the last heartbeat.
    pub is_connected: bool,
    /// The number of jobs that it runs.
    pub running_jobs: usize,
    /// Its models.
    pub models: Vec<DirectorModelHealth>,
}

/// The state of a model of a director.
#[derive(Debug, Clone, Serialize)]
pub struct DirectorModelHealth {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// The health of the model.
    pub status: Health,
}

/// Reads the state of a director.
pub type DirectorHealthSource = Arc<dyn Fn() -> DirectorHealth + Send + Sync>;

/// The route.
pub fn routes(source: DirectorHealthSource) -> Router {
    Router::new()
        .route("/health-check", get(check))
        .with_state(source)
}

async fn check(State(source): State<DirectorHealthSource>) -> Response {
    let body = serde_json::to_vec(&source()).expect("the state has string keys");
    json(StatusCode::OK, body.into())
}
