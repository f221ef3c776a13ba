//! Runpod's local API: what `python handler.py --rp_serve_api` answers, and what its users miss there.
//!
//! The paths that Runpod's own server has are answered in its words, with HTTP 200 for every outcome of a
//! job. The others speak as Runpod's cloud does. Jobs run at once, also those that nobody asks for again.

mod health;
mod jobs;
mod realtime;
mod render;
mod reply;
mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tidegate_service::{JobService, ServedModel};

use crate::shared::body_limit::BodyLimit;

pub use render::renderer;

/// What the app is told.
pub struct Config {
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The longest that a body may make no progress.
    pub body_timeout: Duration,
    /// `RUNPOD_ENDPOINT_ID`: with it there is `/ID/realtime`.
    pub endpoint_id: Option<String>,
}

struct AppState {
    model: Arc<ServedModel>,
    config: Config,
    /// How much of each stream was stream_cursors out.
    stream_cursors: stream::LocalStreamCursors,
}

impl AppState {
    /// The desk of the version that is served now.
    fn jobs(&self) -> JobService {
        self.model.jobs()
    }

    fn bounds(&self) -> BodyLimit {
        BodyLimit {
            max_bytes: self.config.max_body,
            stall_timeout: self.config.body_timeout,
        }
    }
}

/// The app.
pub fn routes(model: Arc<ServedModel>, config: Config) -> Router {
    let realtime = config
        .endpoint_id
        .as_deref()
        .filter(|id| is_plain(id))
        .map(|id| format!("/{id}/realtime"));
    let app = Arc::new(AppState {
        model,
        config,
        stream_cursors: stream::LocalStreamCursors::default(),
    });
    let mut routes = Router::new()
        .route("/run", post(jobs::run))
        .route("/runsync", post(jobs::runsync))
        .route("/status/{id}", get(jobs::show).post(jobs::wait))
        .route("/stream/{id}", get(stream::next).post(stream::all))
        .route("/cancel/{id}", post(jobs::cancel))
        .route("/health", get(health::health));
    if let Some(path) = realtime {
        routes = routes.route(&path, post(realtime::run));
    }
    routes
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(app)
}

/// Whether it can be one part of a path and nothing else.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
