//! Runpod's local API: the API of `python handler.py --rp_serve_api`, with additions.
//!
//! Paths of Runpod's own server respond in its format, with HTTP 200 for every outcome of a job; the
//! other paths have the format of Runpod's cloud. A job starts at once; Runpod's own server starts it
//! when a client asks for its status.

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
use tidegate_core::read_cursors::ReadCursors;
use tidegate_service::{JobService, ServedModel};

use crate::shared::body_limit::BodyLimit;

pub use render::renderer;

/// The configuration of the local API.
#[derive(Clone)]
pub struct Config {
    /// The maximum size of a body, in bytes.
    pub max_body: usize,
    /// How long a client may pause while it sends a body.
    pub body_timeout: Duration,
    /// `RUNPOD_ENDPOINT_ID`: enables `/ID/realtime`.
    pub endpoint_id: Option<String>,
    /// The read positions of streams that all processes of a cluster share.
    pub shared_cursors: Option<Arc<dyn ReadCursors>>,
}

struct AppState {
    model: Arc<ServedModel>,
    config: Config,
    /// How many parts of each stream clients have read.
    stream_cursors: stream::LocalStreamCursors,
}

impl AppState {
    /// The job service of the served version.
    fn jobs(&self) -> JobService {
        self.model.jobs()
    }

    fn bounds(&self) -> BodyLimit {
        BodyLimit::of_flags(self.config.max_body, self.config.body_timeout)
    }
}

/// The routes of the local API.
pub fn routes(model: Arc<ServedModel>, config: Config) -> Router {
    let realtime = config
        .endpoint_id
        .as_deref()
        .filter(|id| is_plain(id))
        .map(|id| format!("/{id}/realtime"));
    let stream_cursors = stream::LocalStreamCursors::new(config.shared_cursors.clone());
    let app = Arc::new(AppState {
        model,
        config,
        stream_cursors,
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

/// Whether also a GET of this path changes state: what a client has read of a stream is not sent again.
pub(crate) fn changes_state_on_get(path: &str) -> bool {
    path.starts_with("/stream/")
}

/// Whether the id is a valid path segment.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
