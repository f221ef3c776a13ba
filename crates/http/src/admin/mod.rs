//! The operator's face: who waits, who works, what was told to whom, and a hand to stop or repeat it.
//!
//! What the server itself does (models, queues, processes) is shown to administrators. Jobs and deliveries
//! are shown to everybody who may call, but only those of the caller's own account; administrators see all.
//! Where nobody has to say who they are, all are one account.

mod deliveries;
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
use tidegate_service::JobService;

use crate::access::{Identity, Role, require_operator};

/// Lists the job_services of this server: one for each model, and one for each version that was trained. They share one store.
pub type JobServices = Arc<dyn Fn() -> Vec<JobService> + Send + Sync>;

/// The face.
pub fn routes(job_services: JobServices) -> Router {
    let server = Router::new()
        .route("/admin/models", get(models::models))
        .route("/admin/queues", get(models::queues))
        .route("/admin/children", get(models::children))
        .route_layer(from_fn(require_operator));
    Router::new()
        .route("/admin/jobs", get(jobs::list))
        .route("/admin/jobs/{account}/{id}", get(jobs::show))
        .route("/admin/jobs/{account}/{id}/logs", get(jobs::logs))
        .route("/admin/jobs/{account}/{id}/cancel", post(jobs::cancel))
        .route("/admin/deliveries", get(deliveries::list))
        .route("/admin/deliveries/{id}/replay", post(deliveries::replay))
        .route("/admin/{*rest}", any(reply::no_such_path))
        .merge(server)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(job_services)
}

/// Whose jobs a caller sees: those of one account, or all.
fn scope(caller: &Identity) -> Option<Account> {
    match caller.role {
        Role::Admin => None,
        Role::User => Some(caller.account.clone()),
    }
}
