//! The client's side of the API: run, status, cancel, purge, health and the list of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::queue::Priority;
use tidegate_core::record::{Api, JobSummary};
use tidegate_core::store::JobFilter;
use tidegate_core::{Account, JobId, JobKind, Status};
use tidegate_remote::EXECUTION_TIMEOUT;
use tidegate_service::{
    EventFilter, Job, OnDuplicateId, ResponseMode, Submission, Submitted, Webhook, WebhookEvent,
};

use super::client_request::ClientRequest;
use super::endpoints::Endpoint;
use super::limits::RequestKind;
use super::query::EndpointQuery;
use super::reply::ApiError;
use super::wire::JobRequest;
use super::{AppState, render};
use crate::access::Identity;
use crate::runpod::status::status_name;
use crate::shared::body_limit::BodyError;
use crate::shared::response::json;
use crate::shared::trace_headers::trace_headers;

/// The maximum sizes of bodies, in bytes.
pub(super) const MAX_RUN: usize = 10 * 1000 * 1000;
pub(super) const MAX_RUNSYNC: usize = 20 * 1000 * 1000;
/// The prefix of the ids of `runsync` jobs.
const SYNC: &str = "sync-";
/// How long the result of a job is kept.
const KEEP_RESULT: Duration = Duration::from_secs(30 * 60);
const KEEP_SYNC_RESULT: Duration = Duration::from_secs(60);
/// The default of `wait` and its bounds, in milliseconds.
const DEFAULT_WAIT: u64 = 90_000;
const WAIT_BOUNDS: (u64, u64) = (1000, 300_000);
/// How long a cancel waits for the end of the job: clients time out after three seconds.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// The most requests that are listed.
const MAX_LISTED: usize = 100;

/// `POST /v2/{endpoint}/run`
pub(super) async fn run(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Run)?;
    let body = request.app.body(body, MAX_RUN).await;
    let body = body.map_err(|error| match error {
        ApiError::Body(BodyError::TooLarge { .. }) => ApiError::RunTooLarge,
        other => other,
    })?;
    let job_request = JobRequest::read(&body)?;
    let job = request
        .submit(&endpoint, new_id("", "-u1"), job_request)
        .await?;
    Ok(json(
        StatusCode::OK,
        render::summary(job.id().as_str(), "IN_QUEUE"),
    ))
}

/// `POST /v2/{endpoint}/runsync`
pub(super) async fn runsync(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::RunSync)?;
    let wait = wait(&request.uri)?;
    let job_request = JobRequest::read(&request.app.body(body, MAX_RUNSYNC).await?)?;
    let job = request
        .submit(&endpoint, new_id(SYNC, "-u1"), job_request)
        .await?;
    Ok(after(&endpoint, &job, wait).await)
}

/// `GET /v2/{endpoint}/status/{id}`
pub(super) async fn status(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Status)?;
    let job = request.job(&endpoint).await?;
    Ok(json(StatusCode::OK, render::job(&job.snapshot())))
}

/// `GET /v2/{endpoint}/status-sync/{id}`
pub(super) async fn status_sync(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Status)?;
    let job = request.job(&endpoint).await?;
    Ok(after(&endpoint, &job, wait(&request.uri)?).await)
}

/// `POST /v2/{endpoint}/cancel/{id}`
pub(super) async fn cancel(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Cancel)?;
    let job = request.job(&endpoint).await?;
    if endpoint.cancel(&request.caller.account, job.id()).await? {
        tokio::time::timeout(CANCEL_TIMEOUT, job.ended()).await.ok();
        return Ok(json(
            StatusCode::OK,
            render::summary(&request.id, "CANCELLED"),
        ));
    }
    Ok(json(
        StatusCode::OK,
        render::summary(&request.id, render::status(&job.snapshot())),
    ))
}

#[derive(Serialize)]
struct PurgeResponse {
    removed: usize,
    status: &'static str,
}

/// `POST /v2/{endpoint}/purge-queue`: cancels the caller's waiting jobs.
pub(super) async fn purge(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Purge)?;
    let caller = &request.caller;
    endpoint.jobs.loaded().await;
    let waiting = endpoint
        .jobs
        .list_in_memory(&job_filter(&endpoint, caller, vec![Status::Queued]))
        .into_iter()
        .map(|job| job.id);
    let waiting: Vec<JobId> = waiting
        .chain(endpoint.remote.awaiting_redelivery())
        .collect();
    let canceled = join_all(
        waiting
            .iter()
            .map(|id| endpoint.cancel(&caller.account, id)),
    )
    .await;
    let mut canceled_ids = Vec::new();
    for (id, canceled) in waiting.iter().zip(canceled) {
        if canceled? {
            canceled_ids.push(id);
        }
    }
    let removed = canceled_ids.len();
    // The next request must not find them waiting.
    let known = canceled_ids
        .iter()
        .filter_map(|id| endpoint.jobs.get_in_memory(&caller.account, id));
    let over: Vec<Arc<Job>> = known.collect();
    tokio::time::timeout(CANCEL_TIMEOUT, join_all(over.iter().map(|job| job.ended())))
        .await
        .ok();
    Ok(ok_json(&PurgeResponse {
        removed,
        status: "completed",
    }))
}

#[derive(Serialize)]
struct EndpointHealth {
    jobs: JobCount,
    workers: WorkerCount,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobCount {
    completed: u64,
    failed: u64,
    in_progress: usize,
    in_queue: usize,
    retried: u64,
}

#[derive(Serialize)]
struct WorkerCount {
    idle: usize,
    initializing: usize,
    ready: usize,
    running: usize,
    throttled: usize,
    unhealthy: usize,
}

/// `GET /v2/{endpoint}/health`
pub(super) async fn health(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.app.endpoint(&request.endpoint)?;
    let ended = |job_request: &[Status]| {
        endpoint
            .jobs
            .metrics()
            .finished_jobs()
            .filter(|(_, _, status, _)| job_request.contains(status))
            .map(|(.., count)| count)
            .sum()
    };
    let (load, workers) = (endpoint.load(), endpoint.remote.worker_counts());
    Ok(ok_json(&EndpointHealth {
        jobs: JobCount {
            completed: ended(&[Status::Succeeded]),
            failed: ended(&[Status::Failed, Status::Aborted]),
            in_progress: load.running,
            in_queue: load.waiting,
            retried: endpoint.remote.retry_count(),
        },
        workers: WorkerCount {
            idle: workers.idle,
            initializing: workers.initializing,
            ready: workers.idle,
            running: workers.running,
            throttled: 0,
            unhealthy: workers.unhealthy,
        },
    }))
}

#[derive(Serialize)]
struct RequestList {
    requests: Vec<RequestEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestEntry {
    id: JobId,
    status: &'static str,
    created_at: Timestamp,
}

/// `GET /v2/{endpoint}/requests`: the caller's last jobs, newest first.
pub(super) async fn requests(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Requests)?;
    let job_filter = job_filter(&endpoint, &request.caller, Vec::new());
    let written = endpoint.jobs.list_recorded(&job_filter).await.map_err(|error| {
        tracing::error!(error = %tidegate_core::chain(&error), "failed to list requests of an endpoint");
        ApiError::Store
    })?;
    // Jobs in memory are newer than their stored records.
    let all: BTreeMap<JobId, JobSummary> = written
        .into_iter()
        .chain(endpoint.jobs.list_in_memory(&job_filter))
        .map(|brief| (brief.id.clone(), brief))
        .collect();
    let mut newest: Vec<JobSummary> = all
        .into_values()
        .filter(|job| is_kept(&job.id, job.completed_at))
        .collect();
    newest.sort_by_key(|job| std::cmp::Reverse(job.created_at));
    newest.truncate(MAX_LISTED);
    let mut requests = Vec::with_capacity(newest.len());
    for job in newest {
        // A summary does not say why the job ended, or whether it lost its worker.
        let whole = match job.status {
            Status::Processing | Status::Failed | Status::Canceled => {
                endpoint.jobs.find(&job.account, &job.id).await?
            }
            _ => None,
        };
        let status = whole.map_or_else(
            || status_name(job.status),
            |whole| render::status(&whole.snapshot()),
        );
        requests.push(RequestEntry {
            id: job.id,
            status,
            created_at: job.created_at,
        });
    }
    Ok(ok_json(&RequestList { requests }))
}

impl AppState {
    /// Finds a job of the caller at this endpoint, as long as its result is kept.
    pub(super) async fn find(
        &self,
        endpoint: &Endpoint,
        caller: &Identity,
        id: &str,
    ) -> Result<Arc<Job>, ApiError> {
        let unknown = || ApiError::NoSuchJob(id.chars().take(100).collect());
        let parsed = JobId::parse(id).map_err(|_| unknown())?;
        let job = endpoint
            .jobs
            .get(&caller.account, &parsed)
            .await?
            .ok_or_else(unknown)?;
        let brief = job.summary();
        let here = brief.target.model == endpoint.jobs.target().model
            && is_kept(&parsed, brief.completed_at);
        here.then_some(job).ok_or_else(unknown)
    }
}

impl ClientRequest {
    pub(super) async fn submit(
        &self,
        endpoint: &Endpoint,
        id: JobId,
        job_request: JobRequest,
    ) -> Result<Arc<Job>, ApiError> {
        let submission = Submission {
            id: Some(id),
            ..endpoint.submission(&self.caller.account, job_request, &self.headers)?
        };
        Ok(match endpoint.jobs.submit(submission).await? {
            Submitted::New(ticket) => Arc::clone(ticket.job()),
            Submitted::Running(job) | Submitted::Ended(job) => job,
        })
    }
}

impl Endpoint {
    /// A submission without an id. The job continues when its client disconnects.
    pub(super) fn submission(
        &self,
        account: &Account,
        job_request: JobRequest,
        headers: &HeaderMap,
    ) -> Result<Submission, ApiError> {
        let webhook = job_request
            .webhook
            .as_deref()
            .map(|url| webhook(self, url, headers))
            .transpose()?;
        let mut context = BTreeMap::from([(
            EXECUTION_TIMEOUT.to_owned(),
            job_request.execution_timeout.as_millis().to_string(),
        )]);
        if job_request.priority == Priority::Low {
            context.insert(Priority::CONTEXT_KEY.to_owned(), true.to_string());
        }
        Ok(Submission {
            account: account.clone(),
            id: None,
            kind: JobKind::Prediction,
            input: job_request.envelope,
            webhook,
            context,
            response_mode: ResponseMode::Async,
            on_duplicate: OnDuplicateId::Refuse,
            deadline: Some(job_request.ttl),
            api: Api::Runpod,
            policies: Api::Runpod.policies(),
            deployment: None,
            destination: None,
            warnings: Vec::new(),
        })
    }
}

fn webhook(endpoint: &Endpoint, url: &str, headers: &HeaderMap) -> Result<Arc<Webhook>, ApiError> {
    let url = endpoint
        .jobs
        .webhook_url(url)
        .inspect_err(|refusal| endpoint.jobs.count_refusal(Api::Runpod, refusal))?;
    Ok(Arc::new(Webhook {
        url,
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: trace_headers(headers),
        updates: Api::Runpod.policies().updates,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: render::renderer(),
    }))
}

pub(super) fn new_id(before: &str, after: &str) -> JobId {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the system provides random bytes");
    let id = JobId::from_random(u128::from_ne_bytes(bits));
    JobId::parse(&format!("{before}{id}{after}")).expect("the id is short ASCII")
}

/// Whether the result of a job is still kept.
fn is_kept(id: &JobId, over: Option<Timestamp>) -> bool {
    let kept = if id.as_str().starts_with(SYNC) {
        KEEP_SYNC_RESULT
    } else {
        KEEP_RESULT
    };
    over.is_none_or(|over| Timestamp::now().duration_since(over).unsigned_abs() < kept)
}

/// A filter for the caller's jobs at this endpoint.
fn job_filter(endpoint: &Endpoint, caller: &Identity, statuses: Vec<Status>) -> JobFilter {
    let model = Some(endpoint.jobs.target().model.clone());
    JobFilter {
        account: Some(caller.account.clone()),
        model,
        statuses,
        limit: MAX_LISTED,
        ..JobFilter::default()
    }
}

/// The parameter `wait`.
fn wait(uri: &Uri) -> Result<Duration, ApiError> {
    let query = EndpointQuery::of(uri);
    let Some(text) = query.get("wait") else {
        return Ok(Duration::from_millis(DEFAULT_WAIT));
    };
    let ms: u64 = text.parse().map_err(|_| {
        ApiError::InvalidRequest("`wait` is not a number of milliseconds".to_owned())
    })?;
    Ok(Duration::from_millis(
        ms.clamp(WAIT_BOUNDS.0, WAIT_BOUNDS.1),
    ))
}

/// Waits for the end of the job, up to `wait`, and returns its state.
async fn after(endpoint: &Endpoint, job: &Arc<Job>, wait: Duration) -> Response {
    tokio::time::timeout(wait, endpoint.jobs.ended_or_left(job))
        .await
        .ok();
    json(StatusCode::OK, render::job(&job.snapshot()))
}

pub(super) fn ok_json(body: &impl Serialize) -> Response {
    json(
        StatusCode::OK,
        serde_json::to_vec(body)
            .expect("the keys are strings")
            .into(),
    )
}
