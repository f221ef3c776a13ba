//! The models, their queues and their processes.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_core::health::{SetupReport, SetupStatus};
use tokio::time::Instant;

use super::query::AdminQuery;
use super::reply::ApiError;
use super::{JobServices, reply, wire};

/// How often a request that waits for more logs of a setup looks for them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// `GET /admin/models/{owner}/{name}/logs?version=&from=&wait=`: the logs of the setup since `from`, and
/// whether more can follow.
pub(super) async fn logs(
    State(job_services): State<JobServices>,
    Path((owner, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let params = AdminQuery::parse(query.as_deref());
    let (from, wait) = (params.from()?, params.wait()?);
    let model = format!("{owner}/{name}");
    let found = job_services().into_iter().find(|jobs| {
        let target = jobs.target();
        let is_version = |version: &str| target.version == version;
        target.model == model && params.version().is_none_or(is_version)
    });
    let jobs = found.ok_or(ApiError::UnknownModel(model))?;
    let deadline = Instant::now() + wait;
    let setup = loop {
        let setup = jobs.report().setup;
        let has_more =
            |setup: &SetupReport| setup.status != SetupStatus::Starting || setup.logs.len() != from;
        if Instant::now() >= deadline || setup.as_ref().is_some_and(has_more) {
            break setup;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    Ok(reply::ok(&wire::SetupLogs::of(setup, from)))
}
