//! `GET /metrics`: the metrics for Prometheus. Counters are incremented where events happen; gauges
//! are computed for each scrape, so that they cannot differ from the current state.

mod cluster_families;
mod director_families;
mod exposition;
mod families;
mod gpu_families;
mod process_stats;
mod router_families;
mod server_families;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use tidegate_core::director_metrics::{DirectorMetrics, DirectorState};
use tidegate_core::gpu::GpuSource;
use tidegate_core::store::StoreMetrics;
use tidegate_service::ClusterMonitor;

use crate::access::require_operator;
use crate::admin::JobServices;
use crate::cog::BuildInfo;
use crate::request_metrics::RequestMetrics;
use crate::shared::header_lists::accepts;
use exposition::Format;
pub use router_families::RouterMetricSource;

/// How long a scrape waits for the store.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the values of the metrics come from.
pub struct MetricSources {
    /// The job services.
    pub job_services: JobServices,
    /// The counters of requests.
    pub request_metrics: Arc<RequestMetrics>,
    /// The counters of the store, if there is one.
    pub store: Option<Arc<StoreMetrics>>,
    /// The cluster that this API process belongs to.
    pub cluster: Option<Arc<ClusterMonitor>>,
    /// The director that this process is.
    pub director: Option<DirectorMetricSource>,
    /// The router that this process is.
    pub router: Option<RouterMetricSource>,
    /// The GPUs of the machine, if the process uses them.
    pub gpus: Arc<dyn GpuSource>,
    /// The version of this build.
    pub build: BuildInfo,
    /// When the server started.
    pub started_at: Timestamp,
}

/// Where the metrics of a director come from.
pub struct DirectorMetricSource {
    /// Its counters.
    pub metrics: Arc<DirectorMetrics>,
    /// Reads its state.
    pub state: Arc<dyn Fn() -> DirectorState + Send + Sync>,
}

/// The route of the metrics.
pub fn routes(sources: MetricSources) -> Router {
    let show = get(show).route_layer(from_fn(require_operator));
    Router::new()
        .route("/metrics", show)
        .with_state(Arc::new(sources))
}

async fn show(State(sources): State<Arc<MetricSources>>, headers: HeaderMap) -> Response {
    let format = if accepts(&headers, "application/openmetrics-text") {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    };
    // All job services share the outbox.
    let services = (sources.job_services)();
    let count_retries = async {
        if let Some(jobs) = services.first() {
            let counted = tokio::time::timeout(READ_TIMEOUT, jobs.count_webhook_retries());
            // The last known number is shown.
            counted.await.ok();
        }
    };
    let read_cluster = async {
        match &sources.cluster {
            Some(monitor) => Some(monitor.state().await),
            None => None,
        }
    };
    let ((), cluster) = tokio::join!(count_retries, read_cluster);
    // Reading /proc blocks.
    let text = tokio::task::spawn_blocking(move || {
        exposition::write(families::collect(&sources, cluster), format)
    })
    .await;
    let Ok(Ok(body)) = text else {
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
