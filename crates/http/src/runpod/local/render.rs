//! Renders a job as JSON in the format of Runpod's cloud.

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_service::{Snapshot, WebhookRenderer};

use crate::runpod::status::status_name;
use crate::shared::json_object::JsonObjectWriter;

/// The metric of `progress_update`; see `tidegate.handler.calls`.
const PROGRESS: &str = "progress";

/// Renders webhooks: the body of `status`, with the input and the webhook's URL.
pub fn renderer() -> WebhookRenderer {
    WebhookRenderer::new(|job| {
        let mut body = JsonObjectWriter::with_capacity(capacity(job));
        times(&mut body, job);
        body.maybe("error", job.error.as_deref())
            .field("id", &job.id)
            .raw("input", Some(&job.input));
        body.raw("output", job.output.as_ref())
            .field("status", status_name(job.status));
        body.maybe("webhook", job.hook.as_ref().map(|hook| &hook.url))
            .finish()
    })
}

/// The body of `status`: while a job runs, `output` is its progress.
pub(super) fn state(job: &Snapshot) -> Bytes {
    let mut body = JsonObjectWriter::with_capacity(capacity(job));
    times(&mut body, job);
    body.maybe("error", job.error.as_deref())
        .field("id", &job.id);
    if job.status.is_terminal() {
        body.raw("output", job.output.as_ref());
    } else {
        body.maybe("output", job.metrics.get(PROGRESS));
    }
    body.field("status", status_name(job.status)).finish()
}

/// Adds the waiting time and the execution time, in milliseconds.
fn times(body: &mut JsonObjectWriter, job: &Snapshot) {
    let between = |from: Timestamp, to: Timestamp| to.duration_since(from).as_millis().max(0);
    if let Some(started_at) = job.started_at {
        body.field("delayTime", &between(job.created_at, started_at));
        body.maybe(
            "executionTime",
            job.completed_at
                .map(|completed_at| between(started_at, completed_at))
                .as_ref(),
        );
    }
}

pub(super) fn capacity(job: &Snapshot) -> usize {
    job.output.as_ref().map_or(0, Bytes::len) + job.input.len() + 512
}
