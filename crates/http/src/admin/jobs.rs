//! Lists, shows, follows and cancels jobs of all accounts.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use jiff::Timestamp;
use tidegate_core::counters::MetricLabel;
use tidegate_core::{Account, JobId};
use tidegate_service::{Job, JobService, ReadPosition};

use super::job_page::{JobPage, find_page};
use super::query::{AdminQuery, account};
use super::reply::ApiError;
use super::{JobServices, reply, scope, wire};
use crate::access::Identity;

/// How long a cancel that came too late waits for the status with which the job ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// `GET /admin/jobs?status=&model=&account=&id=&id_prefix=&limit=&before=`: open jobs, then ended
/// ones; both newest first.
pub(super) async fn list(
    State(job_services): State<JobServices>,
    client: Identity,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let (params, scope) = (AdminQuery::parse(query.as_deref()), scope(&client));
    let filter = params.job_filter(scope.clone())?;
    let after = params.before()?;
    let service = job_services().into_iter().next();
    let page = match service.filter(|_| !params.is_outside(scope.as_ref())) {
        // Each service finds the jobs of all models.
        Some(jobs) => find_page(&jobs, &filter, after.as_ref()).await?,
        None => JobPage {
            jobs: Vec::new(),
            next: None,
        },
    };
    let now = Timestamp::now();
    let jobs = page.jobs.iter();
    Ok(reply::ok(&wire::Jobs {
        jobs: jobs.map(|summary| wire::Job::of(summary, now)).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
        scope: if scope.is_some() { "account" } else { "all" },
    }))
}

/// `GET /admin/jobs/{account}/{id}`
pub(super) async fn show(
    State(job_services): State<JobServices>,
    client: Identity,
    Path(names): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (_, job) = find_job(&job_services(), &client, &names).await?;
    Ok(reply::ok(&wire::Details::of(
        &job.summary(),
        job.snapshot(),
        Timestamp::now(),
    )))
}

/// `GET /admin/jobs/{account}/{id}/attempts`
pub(super) async fn attempts(
    State(job_services): State<JobServices>,
    client: Identity,
    Path(names): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (service, job) = find_job(&job_services(), &client, &names).await?;
    let attempts = service.attempts(&job).await?;
    Ok(reply::ok(&wire::JobAttempts { attempts }))
}

/// `GET /admin/jobs/{account}/{id}/logs?from=&wait=`: the logs since `from`, and whether more can
/// follow.
pub(super) async fn logs(
    State(job_services): State<JobServices>,
    client: Identity,
    Path(names): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let params = AdminQuery::parse(query.as_deref());
    let (from, wait) = (params.from()?, params.wait()?);
    let (_, job) = find_job(&job_services(), &client, &names).await?;
    // Outputs must not end the wait.
    let progress = tokio::time::timeout(
        wait,
        job.progress(ReadPosition {
            outputs: usize::MAX,
            logs: from,
        }),
    )
    .await;
    let logs = progress.map(|progress| progress.logs).unwrap_or_default();
    let summary = job.summary();
    Ok(reply::ok(&wire::Logs {
        next: from + logs.len(),
        logs,
        over: summary.status.is_terminal(),
        status: summary.status,
    }))
}

/// `POST /admin/jobs/{account}/{id}/cancel`
pub(super) async fn cancel(
    State(job_services): State<JobServices>,
    client: Identity,
    Path(names): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (jobs, job) = find_job(&job_services(), &client, &names).await?;
    let canceled = jobs.cancel(job.account(), job.id()).await;
    if !canceled.map_err(|_| ApiError::Store)? {
        if jobs.get_in_memory(job.account(), job.id()).is_some() {
            // The job has ended by itself, and its end is being stored.
            tokio::time::timeout(END_TIMEOUT, job.ended()).await.ok();
        }
        let (id, status) = (names.1, job.status());
        return Err(if status.is_terminal() {
            ApiError::AlreadyEnded(id, status.as_str())
        } else {
            ApiError::NotCancelable(id)
        });
    }
    if !client.account.is_anonymous() && client.account != *job.account() {
        tracing::info!(target: "audit", account = %client.account, of = %job.account(), job = %job.id(), "canceled by an administrator");
    }
    Ok(reply::ok(&wire::Job::of(&job.summary(), Timestamp::now())))
}

/// Finds a job and its job service, if the client may see it.
pub(crate) async fn find_job(
    job_services: &[JobService],
    client: &Identity,
    (owner, name): &(String, String),
) -> Result<(JobService, Arc<Job>), ApiError> {
    let unknown = || ApiError::UnknownJob(name.clone());
    let visible = |account: &Account| scope(client).is_none_or(|own| own == *account);
    let account = account(owner).filter(visible).ok_or_else(unknown)?;
    let id = JobId::parse(name).map_err(|_| unknown())?;
    let running = job_services
        .iter()
        .find_map(|jobs| Some((jobs.clone(), jobs.get_in_memory(&account, &id)?)));
    if let Some(found) = running {
        return Ok(found);
    }
    let jobs = job_services.first().ok_or_else(unknown)?;
    let job = jobs.find(&account, &id).await;
    let job = job.map_err(|_| ApiError::Store)?.ok_or_else(unknown)?;
    Ok((jobs.clone(), job))
}
