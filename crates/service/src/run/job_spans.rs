//! The spans of one run of a job: how long the job waited, and how long the model ran it. They are children of
//! the span of the request that created the job; a job without one has no spans.

use jiff::Timestamp;
use tidegate_core::Status;
use tidegate_core::counters::MetricLabel;
use tidegate_core::health::LoadSpan;
use tidegate_core::trace::{Span, SpanKind};

use crate::job::{Job, now};

/// The spans that have started. Dropping them ends them: the run was left.
#[derive(Default)]
pub(crate) struct JobSpans {
    queue: Option<Span>,
    predict: Option<Span>,
}

impl JobSpans {
    /// The job has waited since it was created.
    pub(super) fn wait(&mut self, job: &Job) {
        self.queue = start(job, "queue", job.created_at());
    }

    /// The job has a slot. `load` is the last load of the model, which it may have waited for.
    pub(super) fn admit(&mut self, job: &Job, load: Option<LoadSpan>) {
        let Some(queue) = self.queue.take() else {
            return;
        };
        let Some(load) = load else { return };
        let (began_at, ready_at) = (
            load.began_at.max(job.created_at()),
            load.ready_at.min(now()),
        );
        if began_at < ready_at {
            let (kind, parent) = (SpanKind::Internal, Some(queue.context()));
            if let Some(mut setup) = Span::start_at("setup", kind, parent, began_at) {
                describe(&mut setup, job);
                setup.set_end(ready_at);
            }
        }
    }

    /// The model begins.
    pub(super) fn begin(&mut self, job: &Job) {
        self.predict = start(job, "predict", now());
    }

    /// The model has ended the run. Its outcome follows, when the output is published.
    pub(super) fn model_ended(&mut self) {
        if let Some(predict) = &mut self.predict {
            predict.set_end(now());
        }
    }

    /// The job has ended with this status.
    pub(super) fn end(&mut self, status: Status) {
        for mut span in [self.queue.take(), self.predict.take()]
            .into_iter()
            .flatten()
        {
            span.attribute("tidegate.job.status", status.as_str());
            if matches!(status, Status::Failed | Status::Aborted) {
                span.fail();
            }
        }
    }
}

fn start(job: &Job, name: &'static str, at: Timestamp) -> Option<Span> {
    let parent = job.trace()?;
    let mut span = Span::start_at(name, SpanKind::Internal, Some(parent), at)?;
    describe(&mut span, job);
    Some(span)
}

fn describe(span: &mut Span, job: &Job) {
    span.attribute("tidegate.job.id", job.id().as_str());
    span.attribute("tidegate.model", job.target().model.as_str());
    span.attribute("tidegate.api", job.api().as_str());
}
