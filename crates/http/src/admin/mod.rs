//! The admin API: shows models, queues, processes, jobs and webhook deliveries; cancels jobs and
//! replays deliveries.
//!
//! Models, queues and processes are shown to administrators. Every client sees the jobs and
//! deliveries of its own account; administrators see those of all accounts. Without tokens all
//! clients share one account.

mod deliveries;
mod follow_logs;
mod gpus;
mod job_page;
mod jobs;
mod models;
mod query;
mod reply;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, get, post};
use tidegate_core::Account;
use tidegate_core::gpu::GpuSource;
use tidegate_service::JobService;

use crate::access::{Identity, Role, require_operator};

pub(crate) use jobs::find_job;
pub(crate) use query::ANONYMOUS;
pub(crate) use reply::{ApiError, no_such_method, no_such_path, ok};
pub(crate) use wire::{Child as ChildDocument, Queue as QueueDocument};

/// Lists the job services of this server: one for each model and one for each trained version. They
/// share one store.
pub type JobServices = Arc<dyn Fn() -> Vec<JobService> + Send + Sync>;

/// The routes of the admin API.
pub fn routes(job_services: JobServices, gpus: Arc<dyn GpuSource>) -> Router {
    let machine = Router::new()
        .route("/admin/gpus", get(gpus::list))
        .route_layer(from_fn(require_operator))
        .with_state(gpus::GpuRouteState {
            job_services: Arc::clone(&job_services),
            gpus,
        });
    let server = Router::new()
        .route("/admin/models", get(models::models))
        .route("/admin/models/{owner}/{name}/logs", get(models::logs))
        .route("/admin/queues", get(models::queues))
        .route("/admin/children", get(models::children))
        .route_layer(from_fn(require_operator));
    Router::new()
        .route("/admin/logs", get(follow_logs::follow))
        .route("/admin/jobs", get(jobs::list))
        .route("/admin/jobs/{account}/{id}", get(jobs::show))
        .route("/admin/jobs/{account}/{id}/logs", get(jobs::logs))
        .route("/admin/jobs/{account}/{id}/attempts", get(jobs::attempts))
        .route("/admin/jobs/{account}/{id}/cancel", post(jobs::cancel))
        .route("/admin/deliveries", get(deliveries::list))
        .route("/admin/deliveries/{id}/replay", post(deliveries::replay))
        .route("/admin/{*rest}", any(reply::no_such_path))
        .merge(server)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(job_services)
        .merge(machine)
}

/// The account whose jobs a client sees; `None` means all accounts.
fn scope(client: &Identity) -> Option<Account> {
    match client.role {
        Role::Admin => None,
        Role::User => Some(client.account.clone()),
    }
}
