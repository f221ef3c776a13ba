//! Submits, shows, waits for and cancels jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::record::Api;
use tidegate_core::{Account, JobId, JobKind, Refusal};
use tidegate_service::{
    EventFilter, Job, JobService, OnDuplicateId, ResponseMode, Submission, Submitted, Webhook,
    WebhookEvent,
};

use super::reply::{self, ApiError};
use super::wire::{Fault, Kind, readable};
use super::{AppState, render};
use crate::access::Identity;
use crate::runpod::status::status_name;
use crate::shared::body_limit::{read_body, slice_or_copy};
use crate::shared::response::json;
use crate::shared::trace_headers::trace_headers;

/// How long a submission waits for the schema of a model that is still loading.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a cancel waits for the end of the job. A handler that ignores it is killed much earlier,
/// unless `--cancel-grace` is very long.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// The error for an unknown job.
pub(super) const JOB_NOT_FOUND: &str = "Job ID not found";

/// `POST /run`
pub(super) async fn run(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, ApiError> {
    let job = submit_body(&app, caller.account, request).await?;
    // Runpod's own server returns this status for a new job.
    Ok(reply::job_status(job.id().as_str(), "IN_PROGRESS"))
}

/// `POST /runsync`
pub(super) async fn runsync(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, ApiError> {
    let job = submit_body(&app, caller.account, request).await?;
    app.jobs().ended_or_left(&job).await;
    Ok(outcome(&job))
}

/// `GET /status/{id}`: the current state of the job.
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(match app.find(&caller.account, &id).await? {
        Some(job) => json(StatusCode::OK, render::state(&job.snapshot())),
        None => reply::failed(&id, JOB_NOT_FOUND),
    })
}

/// `POST /status/{id}`: waits for the end of the job. Runpod's own server starts the job
/// only now.
pub(super) async fn wait(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(match app.find(&caller.account, &id).await? {
        Some(job) => {
            app.jobs().ended_or_left(&job).await;
            outcome(&job)
        }
        None => reply::failed(&id, JOB_NOT_FOUND),
    })
}

/// `POST /cancel/{id}`: cancels the job and returns its status after that.
pub(super) async fn cancel(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let Some(job) = app.find(&caller.account, &id).await? else {
        return Ok(reply::failed(&id, JOB_NOT_FOUND));
    };
    let jobs = app.jobs();
    if jobs.cancel(&caller.account, job.id()).await? {
        tokio::time::timeout(CANCEL_TIMEOUT, jobs.ended_or_left(&job))
            .await
            .ok();
    }
    Ok(reply::job_status(&id, status_name(job.status())))
}

/// The result of a job, or its status when the server shuts down before it ends.
fn outcome(job: &Job) -> Response {
    let now = job.snapshot();
    if now.status.is_terminal() {
        reply::outcome(&now)
    } else {
        reply::job_status(now.id.as_str(), status_name(now.status))
    }
}

impl AppState {
    /// Finds a job of this account.
    pub(super) async fn find(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<Job>>, Refusal> {
        match JobId::parse(id) {
            Ok(id) => self.jobs().get(account, &id).await,
            Err(_) => Ok(None),
        }
    }

    /// Submits a job. It continues when its client disconnects.
    pub(super) async fn submit(&self, submission: Submission) -> Result<Arc<Job>, Refusal> {
        let jobs = self.jobs();
        jobs.wait_for_description(SCHEMA_TIMEOUT).await;
        match jobs.submit(submission).await? {
            Submitted::New(ticket) => Ok(Arc::clone(ticket.job())),
            Submitted::Running(job) | Submitted::Ended(job) => Ok(job),
        }
    }
}

async fn submit_body(
    app: &AppState,
    account: Account,
    request: Request,
) -> Result<Arc<Job>, ApiError> {
    let (parts, body) = request.into_parts();
    let body = readable(read_body(body, app.bounds()).await?);
    let run = Kind::Request.read(&parts.headers, &body)?;
    let webhook = match &run.webhook {
        Some(url) => Some(webhook(&app.jobs(), url, &parts.headers)?),
        None => None,
    };
    let input = slice_or_copy(&body, run.input.get());
    Ok(app
        .submit(Submission {
            webhook,
            ..submission(account, input)
        })
        .await?)
}

/// A submission with an input and no options.
pub(super) fn submission(account: Account, input: Bytes) -> Submission {
    Submission {
        account,
        id: Some(new_id()),
        kind: JobKind::Prediction,
        input,
        webhook: None,
        context: BTreeMap::new(),
        response_mode: ResponseMode::Async,
        on_duplicate: OnDuplicateId::Refuse,
        deadline: None,
        api: Api::Runpod,
        policies: Api::Runpod.policies(),
        deployment: None,
        destination: None,
        warnings: Vec::new(),
    }
}

fn webhook(jobs: &JobService, url: &str, headers: &HeaderMap) -> Result<Arc<Webhook>, Vec<Fault>> {
    let checked = jobs.webhook_url(url).map_err(|refusal| {
        jobs.count_refusal(Api::Runpod, &refusal);
        vec![Fault::of_webhook(url, &refusal.to_string())]
    })?;
    Ok(Arc::new(Webhook {
        url: checked,
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: trace_headers(headers),
        updates: Api::Runpod.policies().updates,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: render::renderer(),
    }))
}

/// `test-` and a random UUID, as Runpod's own server makes them.
fn new_id() -> JobId {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the system provides random bytes");
    bits[6] = bits[6] & 0x0f | 0x40;
    bits[8] = bits[8] & 0x3f | 0x80;
    let hex: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = format!(
        "test-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    );
    JobId::parse(&id).expect("the id has only letters, digits and dashes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_with_a_prefix() {
        let id = new_id().to_string();
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [4, 8, 4, 4, 4, 12],
            "{id}"
        );
        assert!(
            parts[3].starts_with('4')
                && ['8', '9', 'a', 'b'].contains(&parts[4].chars().next().unwrap()),
            "{id}"
        );
    }
}
