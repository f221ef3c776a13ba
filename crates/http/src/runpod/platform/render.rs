//! Renders a job as Runpod's JSON, for responses and webhooks.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::Status;
use tidegate_core::remote::RemoteFacts;
use tidegate_service::{Snapshot, WebhookRenderer};

use super::wire::input_of;
use crate::runpod::status::status_name;
use crate::shared::json_object::JsonObjectWriter;

/// Renders webhooks.
pub fn renderer() -> WebhookRenderer {
    WebhookRenderer::new(|job| {
        let mut body = JsonObjectWriter::with_capacity(
            job.input.len() + job.output.as_ref().map_or(0, Bytes::len),
        );
        write_job(&mut body, job).raw("input", input_of(&job.input).as_ref());
        body.maybe("webhook", job.hook.as_ref().map(|hook| hook.url.as_str()))
            .finish()
    })
}

/// The full state of a job.
pub(super) fn job(job: &Snapshot) -> Bytes {
    write_job(
        &mut JsonObjectWriter::with_capacity(job.output.as_ref().map_or(0, Bytes::len)),
        job,
    )
    .finish()
}

/// The id and status of a job.
pub(super) fn summary(id: &str, status: &str) -> Bytes {
    JsonObjectWriter::with_capacity(64)
        .field("id", id)
        .field("status", status)
        .finish()
}

/// A batch request that was not accepted as a job.
pub(super) fn failed(id: &str, error: &str) -> Bytes {
    JsonObjectWriter::with_capacity(error.len())
        .field("error", error)
        .field("id", id)
        .field("status", "FAILED")
        .finish()
}

/// The status in a rendered job.
pub(super) fn status_of(json: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct StatusField {
        status: String,
    }
    serde_json::from_str::<StatusField>(json)
        .map(|json| json.status)
        .ok()
}

fn write_job<'a>(object: &'a mut JsonObjectWriter, job: &Snapshot) -> &'a mut JsonObjectWriter {
    let remote = job.remote.as_deref();
    let delay = job.started_at.map(|began| between(job.created_at, began));
    let ran = job
        .started_at
        .zip(job.completed_at)
        .map(|(began, over)| between(began, over));
    object
        .maybe("delayTime", delay.as_ref())
        .maybe("error", job.error.as_ref())
        .maybe("executionTime", ran.as_ref())
        .field("id", &job.id)
        .raw("output", output(job).as_ref())
        .maybe("retries", remote.and_then(|remote| remote.retries.as_ref()))
        .field("status", status(job))
        .maybe("workerId", remote.and_then(|remote| remote.worker.as_ref()))
}

/// Runpod's name of a job's status.
pub(super) fn status(job: &Snapshot) -> &'static str {
    // A job that was canceled at or after its deadline timed out.
    let too_late = job
        .deadline
        .zip(job.completed_at)
        .is_some_and(|(deadline, over)| over >= deadline);
    let is_remote = |check: fn(&RemoteFacts) -> bool| job.remote.as_deref().is_some_and(check);
    match job.status {
        Status::Processing if is_remote(|remote| remote.waiting) => "IN_QUEUE",
        Status::Failed if is_remote(|remote| remote.timed_out) => "TIMED_OUT",
        Status::Canceled if too_late => "TIMED_OUT",
        other => status_name(other),
    }
}

/// Why an ended job did not succeed; `None` when it did.
pub(super) fn failure(job: &Snapshot) -> Option<String> {
    match job.status {
        Status::Succeeded => None,
        _ => Some(
            job.error
                .clone()
                .unwrap_or_else(|| format!("the job was {}", status(job))),
        ),
    }
}

/// The final output; before the end, the progress that the worker reported.
fn output(job: &Snapshot) -> Option<Bytes> {
    let remote = job.remote.as_deref();
    let text = |value: &Value| Bytes::from(value.to_string());
    let final_output = || {
        remote
            .and_then(|remote| remote.final_output.as_ref())
            .map(text)
    };
    match job.status {
        Status::Queued | Status::Starting | Status::Processing => {
            remote.and_then(|remote| remote.progress.as_ref()).map(text)
        }
        Status::Succeeded if job.data_removed || remote.is_some_and(|remote| remote.no_output) => {
            None
        }
        Status::Succeeded => final_output().or_else(|| job.output.clone()),
        Status::Failed | Status::Canceled | Status::Aborted => final_output(),
    }
}

/// Milliseconds between two times; 0 when the clock was set back.
fn between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}
