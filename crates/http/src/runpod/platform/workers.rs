//! The worker's side of the protocol: job-take, job-stop, job-done, job-stream and ping of Runpod's
//! SDK. `crates/remote/src/heartbeat.rs` evaluates the pings.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::JobId;
use tidegate_core::lenient::{self, InfinityEncoding};
use tidegate_remote::{
    JobOffer, JobReport, LongPollTimes, MAX_JOBS_PER_TAKE, ReportOutcome, WorkerId, WorkerResult,
};

use super::client_request::path_params;
use super::confirmed_body::confirmed_response;
use super::endpoints::Endpoint;
use super::query::{EndpointQuery, plain};
use super::reply::ApiError;
use super::wire::ReportBody;
use super::{AppState, clients};
use crate::shared::body_limit::{BodyError, BodyLimit, read_body, slice_or_copy};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::response::json;

/// How long a request for jobs is held open: proxies close longer idle connections, and a worker that
/// shuts down waits for the response.
const TAKE_HOLD: Duration = Duration::from_secs(20);
/// How long a request for jobs to stop is held open. The SDK times out after ninety seconds.
const STOP_HOLD: LongPollTimes = LongPollTimes {
    idle: TAKE_HOLD,
    busy: Duration::from_secs(80),
};
/// The delay of a refusal, because a refused worker asks again at once, without end.
pub(super) const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// The SDK passes job ids to its ping process in a buffer of bounded size; a longer list may be
/// truncated.
const MAX_NAMED_JOBS_LEN: usize = 60_000;

/// `GET /v2/{endpoint}/job-take/{worker}`
pub(super) async fn job_take(request: WorkerRequest) -> Response {
    request.record_idle();
    match request.query.get("batch_size") {
        Some(size) => batch(&request, size).await,
        None => {
            let offers = request
                .endpoint
                .remote
                .take_jobs(&request.worker, 1, TAKE_HOLD)
                .await;
            match offers.first().map(job) {
                Some(job) => confirmed_response(job, offers),
                None => none(&request.endpoint).await,
            }
        }
    }
}

/// `GET /v2/{endpoint}/job-take-batch/{worker}`
pub(super) async fn job_take_batch(request: WorkerRequest) -> Response {
    request.record_idle();
    batch(&request, request.query.get("batch_size").unwrap_or("1")).await
}

async fn batch(request: &WorkerRequest, size: &str) -> Response {
    let max = size.parse().unwrap_or(1).clamp(1, MAX_JOBS_PER_TAKE);
    let offers = request
        .endpoint
        .remote
        .take_jobs(&request.worker, max, TAKE_HOLD)
        .await;
    if offers.is_empty() {
        return none(&request.endpoint).await;
    }
    let jobs: Vec<Bytes> = offers.iter().map(job).collect();
    let mut list = Vec::with_capacity(jobs.iter().map(|job| job.len() + 1).sum::<usize>() + 2);
    list.push(b'[');
    for (place, job) in jobs.iter().enumerate() {
        if place > 0 {
            list.push(b',');
        }
        list.extend_from_slice(job);
    }
    list.push(b']');
    confirmed_response(list.into(), offers)
}

/// A job as the worker gets it: the client's body with our id in front.
fn job(offer: &JobOffer) -> Bytes {
    let work = offer.work();
    let mut job = JsonObjectWriter::with_capacity(work.input.len())
        .field("id", &work.id)
        .finish()
        .to_vec();
    job.pop();
    job.push(b',');
    // The envelope is an object with at least an input.
    job.extend_from_slice(&work.input[1..]);
    job.into()
}

/// The response without a job. During shutdown it is delayed: the worker would ask again at once.
async fn none(endpoint: &Endpoint) -> Response {
    if endpoint.remote.is_closed() {
        tokio::time::sleep(REFUSED_AFTER).await;
    }
    empty(StatusCode::NO_CONTENT)
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StopList {
    jobs_to_stop: Vec<JobId>,
}

/// `GET /v2/{endpoint}/job-stop/{worker}`
pub(super) async fn job_stop(request: WorkerRequest) -> Response {
    let jobs_to_stop = request
        .endpoint
        .remote
        .jobs_to_stop(&request.worker, STOP_HOLD)
        .await;
    if jobs_to_stop.is_empty() {
        empty(StatusCode::NO_CONTENT)
    } else {
        clients::ok_json(&StopList { jobs_to_stop })
    }
}

/// `GET /v2/{endpoint}/ping/{worker}`
pub(super) async fn ping(
    WorkerRequest {
        endpoint,
        worker,
        query,
    }: WorkerRequest,
) -> Response {
    if query.get("status") == Some("unhealthy") {
        let reason = query.get("reason").unwrap_or_default();
        tracing::warn!(endpoint = endpoint.name, %worker, check = query.get("check"), reason, "worker reported itself unhealthy");
        endpoint.remote.mark_unhealthy(&worker);
        return empty(StatusCode::OK);
    }
    let named = query.get("job_id").unwrap_or_default();
    let jobs: Vec<&str> = named.split(',').filter(|id| !id.is_empty()).collect();
    for unstarted in endpoint.remote.ping(
        &worker,
        (named.len() < MAX_NAMED_JOBS_LEN).then_some(jobs.as_slice()),
    ) {
        endpoint.adopt_job(&worker, &unstarted);
    }
    empty(StatusCode::OK)
}

/// `POST /v2/{endpoint}/job-done/{worker}/{id}`: the result or the progress of a job.
pub(super) async fn job_done(
    State(app): State<Arc<AppState>>,
    worker_report: WorkerReport,
    body: Body,
) -> Result<Response, ApiError> {
    let streamed = worker_report.request.query.get("isStream") == Some("true");
    let report = match app.posted(body).await?.and_then(|body| read(&body)) {
        Ok(JobReport::Done(finish)) if streamed => JobReport::StreamDone(finish),
        Ok(report) => report,
        // A worker drops a result that is refused, and the job would never end.
        Err(error) => failed(error),
    };
    worker_report.apply(report).await
}

/// `POST /v2/{endpoint}/job-stream/{worker}/{id}`: a part of a job's output.
pub(super) async fn job_stream(
    State(app): State<Arc<AppState>>,
    worker_report: WorkerReport,
    body: Body,
) -> Result<Response, ApiError> {
    let part = app.posted(body).await?.and_then(|body| {
        Ok(posted(&body)?
            .output
            .map(|output| slice_or_copy(&body, output.get())))
    });
    let report = match part {
        Ok(part) => JobReport::Part(part.unwrap_or(Bytes::from_static(b"null"))),
        Err(error) => failed(error),
    };
    worker_report.apply(report).await
}

fn read(body: &Bytes) -> Result<JobReport, String> {
    let posted = posted(body)?;
    if posted.status.as_deref() == Some("IN_PROGRESS") {
        let value = posted
            .output
            .and_then(|output| serde_json::from_str(output.get()).ok());
        return Ok(JobReport::Progress(value.unwrap_or_default()));
    }
    Ok(JobReport::Done(WorkerResult {
        output: posted
            .output
            .map(|output| slice_or_copy(body, output.get())),
        error: posted.error(),
    }))
}

fn posted(body: &Bytes) -> Result<ReportBody<'_>, String> {
    if !body.trim_ascii_start().starts_with(b"{") {
        // serde would read a list as the fields in order.
        return Err("the worker's result is not a JSON object".to_owned());
    }
    serde_json::from_slice(body)
        .map_err(|error| format!("the worker's result cannot be read: {error}"))
}

fn failed(error: String) -> JobReport {
    JobReport::Done(WorkerResult {
        output: None,
        error: Some(error),
    })
}

/// An authenticated request of a worker.
pub(super) struct WorkerRequest {
    endpoint: Arc<Endpoint>,
    worker: WorkerId,
    query: EndpointQuery,
}

impl WorkerRequest {
    /// Records that the worker has no jobs, if its request for jobs says so. A worker forgets a job only
    /// after it has sent the result.
    fn record_idle(&self) {
        if self.query.get("job_in_progress") == Some("0") {
            self.endpoint.remote.report_idle(&self.worker);
        }
    }
}

impl FromRequestParts<Arc<AppState>> for WorkerRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, ApiError> {
        let [endpoint, worker] = path_params(parts, app, ["endpoint", "worker"]).await?;
        let (endpoint, worker) = app.worker(&endpoint, &worker, &parts.headers).await?;
        Ok(Self {
            endpoint,
            worker,
            query: EndpointQuery::of(&parts.uri),
        })
    }
}

/// A worker's report about a job.
pub(super) struct WorkerReport {
    request: WorkerRequest,
    id: JobId,
}

impl WorkerReport {
    /// Applies the report. Responds 200 when the worker need not send it again: every client sees the
    /// report, and a result is stored.
    async fn apply(&self, report: JobReport) -> Result<Response, ApiError> {
        let WorkerRequest {
            endpoint, worker, ..
        } = &self.request;
        match endpoint
            .remote
            .apply_report(worker, &self.id, report)
            .await?
        {
            ReportOutcome::Applied => {}
            ReportOutcome::Buffered => {
                // The worker may have it from the previous server process.
                endpoint.jobs.load_by_id(&self.id).await;
                // A job that is about to start for another worker is not adopted, but open.
                if endpoint.adopt_job(worker, &self.id) || endpoint.jobs.has_open_job(&self.id) {
                    endpoint.remote.buffered_result_committed(&self.id).await?;
                }
            }
            ReportOutcome::Ignored => {
                tracing::debug!(endpoint = endpoint.name, %worker, job = %self.id, "ignored late report")
            }
        }
        Ok(json(StatusCode::OK, Bytes::from_static(b"{}")))
    }
}

impl FromRequestParts<Arc<AppState>> for WorkerReport {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, ApiError> {
        let request = WorkerRequest::from_request_parts(parts, app).await?;
        let [id] = path_params(parts, app, ["id"]).await?;
        let id = JobId::parse(plain(&id))
            .map_err(|error| ApiError::InvalidRequest(error.to_string()))?;
        Ok(Self { request, id })
    }
}

impl Endpoint {
    /// Leaves a job with the worker that has it from the previous server process. Its execution time
    /// counts from its start. Returns whether the job waited here.
    fn adopt_job(&self, worker: &WorkerId, id: &JobId) -> bool {
        self.jobs.hand_over(id, |began_at| {
            let since = |began| Duration::try_from(Timestamp::now().duration_since(began)).unwrap_or_default();
            tracing::info!(endpoint = self.name, %worker, job = %id, "worker still has a job from the previous run");
            self.remote.adoption(worker, began_at.map(since).unwrap_or_default())
        })
    }
}

/// The key of a worker.
pub(super) fn key_of(headers: &HeaderMap) -> &[u8] {
    let key = headers
        .get(AUTHORIZATION)
        .map(|value| value.as_bytes())
        .unwrap_or_default();
    key.strip_prefix(b"Bearer ").unwrap_or(key).trim_ascii()
}

impl AppState {
    /// Checks a worker's key and id.
    async fn worker(
        &self,
        endpoint: &str,
        worker: &str,
        headers: &HeaderMap,
    ) -> Result<(Arc<Endpoint>, WorkerId), ApiError> {
        let found = self.allowed(endpoint, headers).and_then(|endpoint| {
            let worker = WorkerId::parse(plain(worker))
                .map_err(|error| ApiError::InvalidRequest(error.to_string()))?;
            Ok((endpoint, worker))
        });
        if let Err(error) = &found {
            tracing::warn!(target: "audit", endpoint, reason = %error, "worker refused");
            tokio::time::sleep(REFUSED_AFTER).await;
        }
        found
    }

    fn allowed(&self, endpoint: &str, headers: &HeaderMap) -> Result<Arc<Endpoint>, ApiError> {
        // The key first: callers without a key must not learn which endpoints exist.
        if self
            .config
            .worker_keys
            .as_ref()
            .is_some_and(|keys| !keys.matches(endpoint, key_of(headers)))
        {
            return Err(ApiError::InvalidWorkerKey);
        }
        self.endpoint(endpoint)
    }

    /// The body of a report as JSON, or why the job fails because of it.
    async fn posted(&self, body: Body) -> Result<Result<Bytes, String>, ApiError> {
        let bounds = BodyLimit {
            stall_flag: None,
            ..BodyLimit::of_flags(self.config.max_body, self.config.body_timeout)
        };
        match read_body(body, bounds).await {
            Ok(body) => Ok(lenient::as_json(&body, InfinityEncoding::Null)
                .ok_or_else(|| "the worker's result is not JSON".to_owned())),
            Err(error @ BodyError::TooLarge { .. }) => Ok(Err(format!(
                "the worker's result was not accepted: {error}"
            ))),
            Err(error) => Err(error.into()),
        }
    }
}
