//! `GET /` of a server without models: what it is, and the paths of its endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::clients::ok_json;
use super::{AppState, EndpointRegistry, ROOT};
use crate::ui;

#[derive(Serialize)]
struct PlatformIndex {
    tidegate_version: &'static str,
    healthcheck_url: &'static str,
    metrics_url: &'static str,
    /// Where operators list and add endpoints.
    endpoints_url: &'static str,
    endpoints: BTreeMap<String, EndpointUrls>,
}

/// The paths of one endpoint.
#[derive(Serialize)]
pub(crate) struct EndpointUrls {
    run_url: String,
    runsync_url: String,
    status_url: String,
    stream_url: String,
    cancel_url: String,
    health_url: String,
    openai_url: String,
}

/// `GET /`: the paths of the endpoints; for browsers, the web UI.
pub(super) async fn index(State(app): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    ui::index_response(&headers, || paths(&app))
}

fn paths(app: &AppState) -> Response {
    ok_json(&PlatformIndex {
        tidegate_version: env!("CARGO_PKG_VERSION"),
        healthcheck_url: "/health-check",
        metrics_url: "/metrics",
        endpoints_url: "/admin/endpoints",
        endpoints: endpoint_urls(&app.endpoints),
    })
}

/// The paths of each endpoint.
pub(crate) fn endpoint_urls(endpoints: &EndpointRegistry) -> BTreeMap<String, EndpointUrls> {
    let urls_of = |name: &str| {
        let at = |path: &str| format!("{ROOT}{name}/{path}");
        EndpointUrls {
            run_url: at("run"),
            runsync_url: at("runsync"),
            status_url: at("status/{id}"),
            stream_url: at("stream/{id}"),
            cancel_url: at("cancel/{id}"),
            health_url: at("health"),
            openai_url: at("openai/v1"),
        }
    };
    let all = endpoints.all();
    all.iter()
        .map(|endpoint| (endpoint.name.clone(), urls_of(&endpoint.name)))
        .collect()
}
