//! What workers ask and say: Runpod's SDK, unchanged.

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
use tidegate_core::lenient::{self, Infinities};
use tidegate_remote::{
    JobOffer, JobReport, LongPollTimes, MAX_JOBS_PER_TAKE, ReportOutcome, WorkerId, WorkerResult,
};

use super::client_request::path_params;
use super::confirmed_body::confirmed_response;
use super::endpoints::Endpoint;
use super::query::{QueryParams, plain};
use super::reply::ApiError;
use super::wire::ReportBody;
use super::{AppState, clients};
use crate::shared::body_limit::{BodyError, BodyLimit, read_body, slice_or_copy};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::response::json;

/// How long a worker is held that wants a job: proxies cut longer silences, and a worker that is told to end
/// waits for the answer.
const TAKE: Duration = Duration::from_secs(20);
/// How long a worker is held that asks what to stop. It gives up after ninety seconds.
const STOP: LongPollTimes = LongPollTimes {
    idle: TAKE,
    busy: Duration::from_secs(80),
};
/// A worker that is refused asks again at once, for ever. So it waits for the refusal.
const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// Job ids travel to the ping through a text of bounded size; a longer list may have been cut.
const CUT: usize = 60_000;

/// `GET /v2/{endpoint}/job-take/{worker}`
pub(super) async fn job_take(request: WorkerRequest) -> Response {
    request.record_idle();
    match request.query.get("batch_size") {
        Some(size) => batch(&request, size).await,
        None => {
            let offers = request
                .endpoint
                .remote
                .take_jobs(&request.worker, 1, TAKE)
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
        .take_jobs(&request.worker, max, TAKE)
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

/// A job as a worker gets it: what the client sent, with our id before it.
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

/// No job. A server on its way out has none at once, and would be asked again at once.
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
        .jobs_to_stop(&request.worker, STOP)
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
        tracing::warn!(endpoint = endpoint.name, %worker, check = query.get("check"), reason, "a worker cannot work");
        endpoint.remote.mark_unhealthy(&worker);
        return empty(StatusCode::OK);
    }
    let named = query.get("job_id").unwrap_or_default();
    let jobs: Vec<&str> = named.split(',').filter(|id| !id.is_empty()).collect();
    for strange in endpoint
        .remote
        .ping(&worker, (named.len() < CUT).then_some(jobs.as_slice()))
    {
        endpoint.adopt_job(&worker, &strange);
    }
    empty(StatusCode::OK)
}

/// `POST /v2/{endpoint}/job-done/{worker}/{id}`: the end of a job, or how far it is.
pub(super) async fn job_done(
    State(app): State<Arc<AppState>>,
    worker_report: WorkerReport,
    body: Body,
) -> Result<Response, ApiError> {
    let streamed = worker_report.request.query.get("isStream") == Some("true");
    let report = match app.posted(body).await?.and_then(|body| read(&body)) {
        Ok(JobReport::Done(finish)) if streamed => JobReport::StreamDone(finish),
        Ok(report) => report,
        // A worker forgets a result that is refused, and nobody would ever hear of it.
        Err(error) => failed(error),
    };
    Ok(worker_report.apply(report))
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
    Ok(worker_report.apply(report))
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
        // A list would be taken for the fields in order.
        return Err("the worker's result cannot be read: it is no object".to_owned());
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

/// A worker that asks something, and may.
pub(super) struct WorkerRequest {
    endpoint: Arc<Endpoint>,
    worker: WorkerId,
    query: QueryParams,
}

impl WorkerRequest {
    /// A worker that asks for jobs says whether it has some. It forgets one when its result was sent, not before.
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
            query: QueryParams::of(&parts.uri),
        })
    }
}

/// A worker that says something about a job.
pub(super) struct WorkerReport {
    request: WorkerRequest,
    id: JobId,
}

impl WorkerReport {
    /// Whatever becomes of a report, the worker need not send it again.
    fn apply(&self, report: JobReport) -> Response {
        let WorkerRequest {
            endpoint, worker, ..
        } = &self.request;
        match endpoint.remote.apply_report(worker, &self.id, report) {
            ReportOutcome::Applied => {}
            ReportOutcome::Buffered => endpoint.adopt_job(worker, &self.id),
            ReportOutcome::Ignored => {
                tracing::debug!(endpoint = endpoint.name, %worker, job = %self.id, "a report came too late")
            }
        }
        json(StatusCode::OK, Bytes::from_static(b"{}"))
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
    /// A worker has a job that a server before this one gave to it: it goes on, from when it was begun.
    fn adopt_job(&self, worker: &WorkerId, id: &JobId) {
        self.jobs.hand_over(id, |began_at| {
            let since = |began| Duration::try_from(Timestamp::now().duration_since(began)).unwrap_or_default();
            tracing::info!(endpoint = self.name, %worker, job = %id, "a worker has a job from before");
            self.remote.adoption(worker, began_at.map(since).unwrap_or_default())
        });
    }
}

impl AppState {
    /// The endpoint that a worker may work for, and who it is.
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
            tracing::warn!(target: "audit", endpoint, reason = %error, "a worker was refused");
            tokio::time::sleep(REFUSED_AFTER).await;
        }
        found
    }

    fn allowed(&self, endpoint: &str, headers: &HeaderMap) -> Result<Arc<Endpoint>, ApiError> {
        // The key first: who has none does not learn which endpoints there are.
        let key = headers
            .get(AUTHORIZATION)
            .map(|value| value.as_bytes())
            .unwrap_or_default();
        let key = key.strip_prefix(b"Bearer ").unwrap_or(key).trim_ascii();
        if self
            .config
            .worker_keys
            .as_ref()
            .is_some_and(|keys| !keys.matches(endpoint, key))
        {
            return Err(ApiError::InvalidWorkerKey);
        }
        self.endpoint(endpoint)
    }

    /// What a worker posted, as JSON; or why the job has failed with it.
    async fn posted(&self, body: Body) -> Result<Result<Bytes, String>, ApiError> {
        let bounds = BodyLimit {
            max_bytes: self.config.max_body,
            stall_timeout: self.config.body_timeout,
        };
        match read_body(body, bounds).await {
            Ok(body) => Ok(lenient::as_json(&body, Infinities::Null)
                .ok_or_else(|| "the worker's result is not JSON".to_owned())),
            Err(error @ BodyError::TooLarge { .. }) => {
                Ok(Err(format!("the worker's result was refused: {error}")))
            }
            Err(error) => Err(error.into()),
        }
    }
}
