//! Jobs of all accounts: listed, looked at, followed and stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_core::meter::MetricLabel;
use tidegate_core::record::JobSummary;
use tidegate_core::store::JobFilter;
use tidegate_core::{Account, JobId};
use tidegate_service::{Job, JobService, ReadPosition};

use super::query::{JobQuery, account};
use super::reply::ApiError;
use super::{JobServices, reply, scope, wire};
use crate::access::Identity;

/// How long a cancel that came too late waits until it is known how the job ended.
const UNTIL_WRITTEN: Duration = Duration::from_secs(5);

/// `GET /admin/jobs?status=&model=&account=&id=&limit=`: those that are not over, then those that are; each
/// part newest first.
pub(super) async fn list(
    State(job_services): State<JobServices>,
    caller: Identity,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (query_params, scope) = (JobQuery::read(query.as_deref()), scope(&caller));
    let wanted = query_params.wanted(scope.clone())?;
    let nothing = query_params.is_about_others(scope.as_ref());
    let found = if nothing {
        Vec::new()
    } else {
        find(&job_services(), &wanted).await?
    };
    let now = Timestamp::now();
    let jobs = found
        .iter()
        .map(|brief| wire::Job::of(brief, now))
        .collect();
    Ok(reply::shown(&wire::Jobs {
        jobs,
        scope: if scope.is_some() { "account" } else { "all" },
    }))
}

async fn find(
    job_services: &[JobService],
    wanted: &JobFilter,
) -> Result<Vec<JobSummary>, ApiError> {
    // All that are in memory, wanted or not: what is written down about them may be of a moment ago.
    let everything = job_services
        .iter()
        .flat_map(|jobs| jobs.in_memory(&JobFilter::default()));
    let mut known: HashMap<(Account, JobId), JobSummary> =
        everything.map(|brief| (key(&brief), brief)).collect();
    if let Some(jobs) = job_services.first() {
        for brief in jobs.recorded(wanted).await? {
            known.entry(key(&brief)).or_insert(brief);
        }
    }
    let mut found: Vec<JobSummary> = known
        .into_values()
        .filter(|brief| wanted.matches(brief))
        .collect();
    found.sort_by_key(|brief| {
        (
            brief.status.is_terminal(),
            std::cmp::Reverse(brief.created_at),
        )
    });
    found.truncate(wanted.limit);
    Ok(found)
}

fn key(brief: &JobSummary) -> (Account, JobId) {
    (brief.account.clone(), brief.id.clone())
}

/// `GET /admin/jobs/{account}/{id}`
pub(super) async fn show(
    State(job_services): State<JobServices>,
    caller: Identity,
    Path(names): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (_, job) = look(&job_services(), &caller, &names).await?;
    Ok(reply::shown(&wire::Details::of(
        &job.summary(),
        job.snapshot(),
        Timestamp::now(),
    )))
}

/// `GET /admin/jobs/{account}/{id}/logs?from=&wait=`: what was printed since, and whether there will be more.
pub(super) async fn logs(
    State(job_services): State<JobServices>,
    caller: Identity,
    Path(names): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query_params = JobQuery::read(query.as_deref());
    let (from, wait) = (query_params.from()?, query_params.wait()?);
    let (_, job) = look(&job_services(), &caller, &names).await?;
    // Values are of no interest here, however many there are.
    let progress = tokio::time::timeout(
        wait,
        job.progress(ReadPosition {
            outputs: usize::MAX,
            logs: from,
        }),
    )
    .await;
    let logs = progress.map(|progress| progress.logs).unwrap_or_default();
    let brief = job.summary();
    Ok(reply::shown(&wire::Logs {
        next: from + logs.len(),
        logs,
        over: brief.status.is_terminal(),
        status: brief.status,
    }))
}

/// `POST /admin/jobs/{account}/{id}/cancel`
pub(super) async fn cancel(
    State(job_services): State<JobServices>,
    caller: Identity,
    Path(names): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (jobs, job) = look(&job_services(), &caller, &names).await?;
    if !jobs.cancel(job.account(), job.id()).await {
        if jobs.known(job.account(), job.id()).is_some() {
            // It has ended by itself, and that is being written down.
            tokio::time::timeout(UNTIL_WRITTEN, job.ended()).await.ok();
        }
        let (id, status) = (names.1, job.status());
        return Err(if status.is_terminal() {
            ApiError::Over(id, status.as_str())
        } else {
            ApiError::LeftInStore(id)
        });
    }
    if !caller.account.is_anonymous() && caller.account != *job.account() {
        tracing::info!(target: "audit", account = %caller.account, of = %job.account(), job = %job.id(), "canceled by an administrator");
    }
    Ok(reply::shown(&wire::Job::of(
        &job.summary(),
        Timestamp::now(),
    )))
}

/// The job with these names, and its desk, if the caller may know of it.
async fn look(
    job_services: &[JobService],
    caller: &Identity,
    (owner, name): &(String, String),
) -> Result<(JobService, Arc<Job>), ApiError> {
    let unknown = || ApiError::UnknownJob(name.clone());
    let visible = |account: &Account| scope(caller).is_none_or(|own| own == *account);
    let account = account(owner).filter(visible).ok_or_else(unknown)?;
    let id = JobId::parse(name).map_err(|_| unknown())?;
    let running = job_services
        .iter()
        .find_map(|jobs| Some((jobs.clone(), jobs.known(&account, &id)?)));
    if let Some(found) = running {
        return Ok(found);
    }
    let jobs = job_services.first().ok_or_else(unknown)?;
    let job = jobs.find(&account, &id).await.ok_or_else(unknown)?;
    Ok((jobs.clone(), job))
}
