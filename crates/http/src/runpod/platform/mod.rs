//! The Runpod face of the platform: clients bring jobs to an endpoint, and workers come for them.
//!
//! Both speak Runpod's own words, so that its SDKs work unchanged on either side. An endpoint is a desk
//! whose executor is [`tidegate_remote::Remote`].

mod batch;
mod clients;
mod endpoints;
mod given;
mod handout;
mod limits;
mod manage;
mod openai;
mod parting;
mod question;
pub(crate) mod reply;
mod retry;
mod stream;
mod visit;
mod voice;
mod wire;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, get, post, put};

pub use batch::Batches;
pub use endpoints::{
    Doors, Endpoint, Endpoints, InvalidName, MODELS, NotOpened, NotRemoved, OpenJobs, WorkerKeys,
};
pub use given::Given;
pub use limits::Limits;
pub use voice::renderer;

use crate::access::{require_admin, require_operator};

/// Everything of this face is below it.
pub(crate) const ROOT: &str = "/v2/";

/// What only workers ask. They have keys of their own, which are looked at here and not before.
const WORKERS_ASK: [&str; 6] = [
    "job-take",
    "job-take-batch",
    "job-done",
    "job-stream",
    "job-stop",
    "ping",
];

/// Whether a path is for workers.
pub(crate) fn is_open(path: &str) -> bool {
    let asked = path
        .strip_prefix(ROOT)
        .and_then(|rest| rest.split('/').nth(1));
    asked.is_some_and(|asked| WORKERS_ASK.contains(&asked))
}

/// What the face is told.
pub struct Config {
    /// The largest result of a worker, in bytes.
    pub max_body: usize,
    /// The longest that a body may make no progress.
    pub body_timeout: Duration,
    /// How workers show that they belong to an endpoint; without it nobody has to.
    pub keys: Option<WorkerKeys>,
    /// How workers reach this server, without a slash at the end.
    pub base_url: String,
    /// How much may be asked.
    pub limits: Limits,
    /// Many requests under one name.
    pub batches: Batches,
    /// What was read of streams.
    pub given: Given,
}

struct Face {
    endpoints: Endpoints,
    config: Config,
}

type Shared = Arc<Face>;

/// The face, with a health check: it is the whole of a server.
pub fn routes(endpoints: Endpoints, config: Config) -> Router {
    let face = Arc::new(Face { endpoints, config });
    let operators = Router::new()
        .route("/admin/endpoints", get(manage::list).post(manage::add))
        .route("/admin/endpoints/{endpoint}/env", get(manage::env))
        .route_layer(from_fn(require_operator));
    let admins = Router::new()
        .route("/admin/endpoints/{endpoint}/remove", post(manage::remove))
        .route_layer(from_fn(require_admin));
    let workers = Router::new()
        .route("/v2/{endpoint}/job-take/{worker}", get(workers::take))
        .route(
            "/v2/{endpoint}/job-take-batch/{worker}",
            get(workers::take_batch),
        )
        .route("/v2/{endpoint}/job-done/{worker}/{id}", post(workers::done))
        .route("/v2/{endpoint}/job-stop/{worker}", get(workers::stop))
        .route_layer(from_fn(parting::part));
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
        .route("/v2/{endpoint}/openai/{*route}", any(openai::pass))
        .route(
            "/v2/{endpoint}/job-stream/{worker}/{id}",
            post(workers::part),
        )
        .route("/v2/{endpoint}/ping/{worker}", get(workers::ping))
        .route("/health-check", get(manage::check))
        .fallback(reply::no_such_path)
        .merge(workers)
        .merge(operators)
        .merge(admins)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(face)
}
