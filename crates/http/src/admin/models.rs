//! The models, their queues and their processes.

use std::collections::HashSet;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;

use super::{JobServices, reply, wire};

/// `GET /admin/models`
pub(super) async fn models(State(job_services): State<JobServices>) -> Response {
    let mut models = Vec::new();
    for jobs in job_services() {
        // `health`, unlike `report`, runs the health check of the model.
        models.push(wire::Model::of(
            jobs.target(),
            jobs.health().await,
            jobs.pool_status(),
        ));
    }
    reply::ok(&wire::Models { models })
}

/// `GET /admin/queues`
pub(super) async fn queues(State(job_services): State<JobServices>) -> Response {
    let (mut job_services, now) = (job_services(), Timestamp::now());
    // All versions of a model share one queue.
    let mut seen = HashSet::new();
    job_services.retain(|jobs| seen.insert(jobs.target().model.clone()));
    let queues = job_services
        .iter()
        .map(|jobs| wire::Queue::of(jobs.target(), &jobs.queue(), now))
        .collect();
    reply::ok(&wire::Queues { queues })
}

/// `GET /admin/children`
pub(super) async fn children(State(job_services): State<JobServices>) -> Response {
    let each = |jobs: tidegate_service::JobService| {
        wire::Child::all(&jobs.target().model, jobs.pool_status())
    };
    let children = job_services().into_iter().flat_map(each).collect();
    reply::ok(&wire::Children { children })
}
