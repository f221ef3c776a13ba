//! One job: its document, with input and output for its own account.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::record::{JobSummary, Target};
use tidegate_service::{Job, Snapshot};

use super::UiState;
use super::wire::{JobData, JobDocument, JobWithData, account_name, seconds};
use crate::access::Identity;
use crate::admin::{ApiError, find_job, ok};
use crate::runpod::platform;

/// `GET /ui/api/jobs/{account}/{id}`
pub(super) async fn show(
    State(ui): State<Arc<UiState>>,
    client: Identity,
    Path(names): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (service, job) = find_job(&ui.job_services(), &client, &names).await?;
    // A job in memory may have its input only in the store.
    let found = service.find(job.account(), job.id()).await;
    let job = found.ok().flatten().unwrap_or(job);
    let snapshot = match &ui.sources.files {
        Some(files) => files.for_request(&headers).snapshot(&job),
        None => job.snapshot(),
    };
    let view = JobView::of(&job, &client);
    let input = input_of(&snapshot);
    let data = view.is_own().then(|| JobData {
        input: input.as_ref().and_then(raw),
        output: snapshot.output.as_ref().and_then(raw),
    });
    Ok(ok(&JobWithData {
        job: view.document(&snapshot),
        data,
        logs: &snapshot.logs,
    }))
}

/// A job as one client sees it.
pub(super) struct JobView {
    summary: JobSummary,
    attempt: u32,
    is_list: bool,
    is_own: bool,
}

impl JobView {
    pub(super) fn of(job: &Job, client: &Identity) -> Self {
        Self {
            summary: job.summary(),
            attempt: job.attempt(),
            is_list: job.is_output_list(),
            is_own: *job.account() == client.account,
        }
    }

    /// Whether the client may see input and output: those of other accounts are private, also for
    /// administrators.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The document without input, output and logs.
    pub(super) fn document<'a>(&'a self, job: &'a Snapshot) -> JobDocument<'a> {
        let end = job.completed_at.unwrap_or_else(Timestamp::now);
        let waited_s = seconds(job.created_at, job.started_at.unwrap_or(end));
        let loaded_s = job.times.and_then(|times| times.load_time);
        let remote = job.remote.as_deref();
        let retries = remote.and_then(|remote| remote.retries).unwrap_or(0);
        JobDocument {
            id: job.id.as_str(),
            account: account_name(&job.account),
            kind: job.kind,
            api: self.summary.api,
            model: &job.target.model,
            endpoint: endpoint_name(&job.target),
            version: &job.target.version,
            status: job.status,
            created_at: job.created_at.to_string(),
            started_at: job.started_at.map(|at| at.to_string()),
            completed_at: job.completed_at.map(|at| at.to_string()),
            deadline: job.deadline.map(|at| at.to_string()),
            waited_s: (waited_s - loaded_s.unwrap_or_default()).max(0.0),
            loaded_s,
            ran_s: job.started_at.map(|began| seconds(began, end)),
            // What remote workers retried is one attempt of the server.
            attempt: u64::from(self.attempt.max(1)) + retries,
            worker: remote.and_then(|remote| remote.worker.as_deref()),
            error: job.error.as_deref(),
            metrics: &job.metrics,
            warnings: &job.warnings,
            data_removed: job.data_removed,
            output_is_list: self.is_list,
            private: !self.is_own,
        }
    }
}

/// The input of a job. A job of an endpoint is stored as the whole request.
fn input_of(job: &Snapshot) -> Option<Bytes> {
    if job.data_removed {
        return None;
    }
    match job.target.is_endpoint() {
        true => platform::input_of(&job.input),
        false => Some(job.input.clone()),
    }
}

/// The name of the endpoint that a job is for.
fn endpoint_name(target: &Target) -> Option<&str> {
    let (_, name) = target.model.split_once('/')?;
    target.is_endpoint().then_some(name)
}

fn raw(json: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(json).ok()
}
