//! `GET /metrics`: what Prometheus reads. Counters are kept where things happen; everything that is a state
//! is asked for when somebody looks, so that it cannot differ from the truth.

mod families;
mod process;
mod text;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use tidegate_core::store::StoreMeter;

use crate::access::operators_only;
use crate::admin::Desks;
use crate::cog::Build;
use crate::shared::lists::accepts;
use crate::traffic::Traffic;
use text::Format;

/// What is shown.
pub struct Sources {
    /// The desks.
    pub desks: Desks,
    /// The requests.
    pub traffic: Arc<Traffic>,
    /// The store, if there is one.
    pub store: Option<Arc<StoreMeter>>,
    /// What was built.
    pub build: Build,
    /// When the server was started.
    pub started_at: Timestamp,
}

/// The face.
pub fn routes(sources: Sources) -> Router {
    let show = get(show).route_layer(from_fn(operators_only));
    Router::new()
        .route("/metrics", show)
        .with_state(Arc::new(sources))
}

async fn show(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    let format = if accepts(&headers, "application/openmetrics-text") {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    };
    // The system is asked about processes, which takes a moment.
    let written =
        tokio::task::spawn_blocking(move || text::write(families::gather(&sources), format)).await;
    let Ok(Ok(body)) = written else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut response = body.into_response();
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static(format.content_type()),
    );
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
