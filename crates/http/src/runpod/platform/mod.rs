//! Runpod's platform API: clients submit jobs to an endpoint, and workers fetch them.
//!
//! Both sides use Runpod's own protocol, so that its SDKs work unchanged. An endpoint is a job service
//! whose executor is [`tidegate_remote::RemoteExecutor`].

mod batch;
mod client_request;
mod clients;
mod close_connection;
pub mod cluster;
mod confirmed_body;
mod endpoint_admin;
mod endpoints;
mod index;
mod limits;
mod openai;
mod query;
mod render;
pub(crate) mod reply;
mod retry;
mod stream;
mod stream_cursors;
mod wire;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, get, post, put};

pub use batch::Batches;
pub use endpoints::{
    Endpoint, EndpointFactory, EndpointRegistry, InvalidEndpointName, OpenEndpointError,
    RemoveEndpointError, UnfinishedJobs, WorkerKeys, register_endpoint, registered_endpoints,
};
pub(crate) use index::{EndpointUrls, endpoint_urls};
pub use limits::EndpointLimits;
pub use render::renderer;
pub use stream_cursors::StreamCursors;
pub(crate) use wire::input_of;

use crate::access::{require_admin, require_operator};
use crate::ui;

/// The prefix of the paths of endpoints.
pub(crate) const ROOT: &str = "/v2/";

/// The routes of workers. `workers.rs` checks their keys; the access layer lets them pass.
const WORKER_ROUTES: [&str; 6] = [
    "job-take",
    "job-take-batch",
    "job-done",
    "job-stream",
    "job-stop",
    "ping",
];

/// Whether a path is a worker route.
pub(crate) fn is_worker_path(path: &str) -> bool {
    route_of(path).is_some_and(|route| WORKER_ROUTES.contains(&route))
}

/// Whether also a GET of this path changes state: workers fetch jobs with it, OpenAI requests are jobs, and
/// what a client has read of a stream is not sent again.
pub(crate) fn changes_state_on_get(path: &str) -> bool {
    route_of(path)
        .is_some_and(|route| matches!(route, "openai" | "stream") || WORKER_ROUTES.contains(&route))
}

/// The segment after the endpoint.
fn route_of(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)
        .and_then(|rest| rest.split('/').nth(1))
}

/// The configuration of the platform API.
pub struct Config {
    /// The maximum size of a worker's result, in bytes.
    pub max_body: usize,
    /// How long a client may pause while it sends a body.
    pub body_timeout: Duration,
    /// The keys of workers; `None` when workers need no key.
    pub worker_keys: Option<WorkerKeys>,
    /// The URL of this server for workers, without a trailing slash.
    pub base_url: String,
    /// The rate limits of clients.
    pub limits: EndpointLimits,
    /// The batches of requests.
    pub batches: Batches,
    /// The read positions of streams.
    pub stream_cursors: StreamCursors,
}

struct AppState {
    endpoints: EndpointRegistry,
    config: Config,
}

/// All routes of a server that has endpoints and no models, including its index and health check.
pub fn server_routes(endpoints: EndpointRegistry, config: Config) -> Router {
    let app = Arc::new(AppState { endpoints, config });
    Router::new()
        .route("/", get(index::index))
        .route("/docs", get(ui::docs_redirect))
        .route("/health-check", get(endpoint_admin::check))
        .fallback(reply::no_such_path)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(Arc::clone(&app))
        .merge(endpoint_routes(app))
}

/// The routes of the endpoints of a server.
pub fn routes(endpoints: EndpointRegistry, config: Config) -> Router {
    endpoint_routes(Arc::new(AppState { endpoints, config }))
}

/// The routes of an endpoint that a process of a cluster owns, which no other routes are added to.
pub fn owned_routes(endpoints: EndpointRegistry, config: Config) -> Router {
    routes(endpoints, config).fallback(reply::no_such_path)
}

fn endpoint_routes(app: Arc<AppState>) -> Router {
    let operators = Router::new()
        .route(
            "/admin/endpoints",
            get(endpoint_admin::list).post(endpoint_admin::add),
        )
        .route("/admin/endpoints/{endpoint}/env", get(endpoint_admin::env))
        .route_layer(from_fn(require_operator));
    let admins = Router::new()
        .route(
            "/admin/endpoints/{endpoint}/remove",
            post(endpoint_admin::remove),
        )
        .route_layer(from_fn(require_admin));
    let workers = Router::new()
        .route("/v2/{endpoint}/job-take/{worker}", get(workers::job_take))
        .route(
            "/v2/{endpoint}/job-take-batch/{worker}",
            get(workers::job_take_batch),
        )
        .route(
            "/v2/{endpoint}/job-done/{worker}/{id}",
            post(workers::job_done),
        )
        .route("/v2/{endpoint}/job-stop/{worker}", get(workers::job_stop))
        .route_layer(from_fn(close_connection::close_sdk_connections));
    Router::new()
        .route("/v2/{endpoint}/run", post(clients::run))
        .route("/v2/{endpoint}/runsync", post(clients::runsync))
        .route(
            "/v2/{endpoint}/status/{id}",
            get(clients::status).post(clients::status),
        )
        .route(
            "/v2/{endpoint}/status-sync/{id}",
            get(clients::status_sync).post(clients::status_sync),
        )
        .route(
            "/v2/{endpoint}/stream/{id}",
            get(stream::stream).post(stream::stream),
        )
        .route("/v2/{endpoint}/cancel/{id}", post(clients::cancel))
        .route("/v2/{endpoint}/retry/{id}", post(retry::retry))
        .route("/v2/{endpoint}/purge-queue", post(clients::purge))
        .route(
            "/v2/{endpoint}/health",
            get(clients::health).post(clients::health),
        )
        .route(
            "/v2/{endpoint}/requests",
            get(clients::requests).post(clients::requests),
        )
        .route("/v2/{endpoint}/batch", get(batch::list).post(batch::create))
        .route(
            "/v2/{endpoint}/batch/{id}",
            get(batch::get).put(batch::rename),
        )
        .route(
            "/v2/{endpoint}/batch/{id}/requests",
            get(batch::requests).post(batch::add),
        )
        .route(
            "/v2/{endpoint}/batch/{id}/requests/{request}",
            put(batch::change).delete(batch::remove),
        )
        .route("/v2/{endpoint}/batch/{id}/finalize", post(batch::finalize))
        .route("/v2/{endpoint}/batch/{id}/cancel", post(batch::cancel))
        .route("/v2/{endpoint}/openai/{*route}", any(openai::forward))
        .route(
            "/v2/{endpoint}/job-stream/{worker}/{id}",
            post(workers::job_stream),
        )
        .route("/v2/{endpoint}/ping/{worker}", get(workers::ping))
        .merge(workers)
        .merge(operators)
        .merge(admins)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(app)
}
