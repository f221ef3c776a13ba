//! What happens to a job, told by its tracker, the only writer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::remote::RemoteFact;
use tidegate_core::{LogSource, Metric, MetricMode, Status, Step, metrics};

use super::{Job, MAX_LOGS, MAX_METRICS, OutputTooLarge, VALUE_OVERHEAD, now};
use crate::snapshot::{ReadPosition, Snapshot, TerminalState};
use crate::stream::{History, StreamEvent};

/// What the tracker does to a job. Each returns what webhooks need to picture that moment later.
impl Job {
    pub(crate) fn assign(&self) {
        self.with(|state| state.step(Step::Assign))
            .expect("a new job is assigned once");
    }

    pub(crate) fn begin(&self, at: Timestamp) {
        self.with(|state| {
            state
                .step(Step::Begin)
                .expect("an assigned job begins once");
            state.started_at = Some(at);
            state.tell(|| StreamEvent::Start);
        });
        self.live.changed.notify_waiters();
    }

    /// When it begins, if that is now.
    pub(crate) fn start_time(&self) -> Timestamp {
        now().max(self.live.created_at)
    }

    /// How long it stood in the line when it began at this moment.
    pub(crate) fn queue_time(&self, began_at: Timestamp) -> Duration {
        between(self.live.created_at, began_at)
    }

    pub(crate) fn log(&self, source: LogSource, text: &str) -> ReadPosition {
        let mark = self.with(|state| {
            if !state.logs_full && state.logs.len() + text.len() > MAX_LOGS {
                state.logs_full = true;
                state.logs.push_str(
                    "\n[the rest of the logs was left out: they are longer than 16 MiB]\n",
                );
            }
            if !state.logs_full {
                state.logs.push_str(text);
                state.tell(|| StreamEvent::Log {
                    source,
                    text: text.into(),
                });
            }
            state.mark()
        });
        self.live.changed.notify_waiters();
        mark
    }

    pub(crate) fn metric(&self, metric: Metric) {
        self.with(|state| {
            // What takes the place of another makes nothing longer, and the last word on a thing is the one that counts.
            let replaces =
                metric.mode == MetricMode::Replace && state.metrics.contains_key(&metric.name);
            if !replaces {
                state.metrics_count += 1;
                if state.metrics_count > MAX_METRICS {
                    return;
                }
            }
            metrics::fold(&mut state.metrics, &metric);
            state.tell(|| StreamEvent::Metric(Arc::new(metric)));
        });
        self.live.changed.notify_waiters();
    }

    pub(crate) fn remote_fact(&self, fact: RemoteFact) {
        self.with(|state| state.remote.get_or_insert_default().apply(fact));
        self.live.changed.notify_waiters();
    }

    pub(crate) fn output(&self, json: Bytes) -> Result<ReadPosition, OutputTooLarge> {
        let mark = self.with(|state| {
            state.output_bytes += json.len() + VALUE_OVERHEAD;
            if state.output_bytes > self.live.max_output {
                return Err(OutputTooLarge {
                    limit: self.live.max_output,
                });
            }
            let index = state.output.len();
            state.output.push(json.clone());
            state.tell(|| StreamEvent::Output { index, chunk: json });
            Ok(state.mark())
        })?;
        self.live.changed.notify_waiters();
        Ok(mark)
    }

    /// The one returned value.
    pub(crate) fn returned(&self, json: Bytes) -> Result<ReadPosition, OutputTooLarge> {
        // Before the value, so that nobody sees it as one of many.
        self.with(|state| state.returned = true);
        self.output(json)
    }

    /// The end that the job is about to have. It is end_decided here once, so that everybody is told the same; nothing
    /// when somebody else has ended it.
    pub(crate) fn decide_end(&self, terminal: TerminalState) -> Option<JobEnd> {
        let (from, started_at, cancel_requested) = self.with(|state| {
            state.end_decided = true;
            (state.status, state.started_at, state.cancel_requested)
        });
        let completed_at = now().max(started_at.unwrap_or(self.live.created_at));
        // Whoever was told that it stops was told the truth, however close it was.
        let terminal = if cancel_requested {
            TerminalState::Canceled
        } else {
            terminal
        };
        let (step, error) = match terminal {
            TerminalState::Succeeded => (Step::Succeed, None),
            TerminalState::Failed(error) => (Step::Fail, Some(error)),
            TerminalState::Canceled => (Step::Cancel, None),
            TerminalState::Aborted => (Step::Abort, None),
        };
        // A job that fails while it waits was about to be given a place.
        let from = if step == Step::Fail && from == Status::Queued {
            Status::Starting
        } else {
            from
        };
        Some(JobEnd {
            status: from.after(step).ok()?,
            error,
            completed_at,
            run_time: started_at.map(|began| between(began, completed_at)),
            predict_time: Some(self.live.born.elapsed().as_secs_f64()),
        })
    }

    /// The end of a recorded job that has no tracker; `None` when it has ended.
    pub(crate) fn end_without_run(&self, terminal: TerminalState) -> Option<JobEnd> {
        Some(JobEnd {
            run_time: None,
            predict_time: None,
            ..self.decide_end(terminal)?
        })
    }

    /// The job as it will be with this end.
    pub(crate) fn snapshot_with(&self, end: &JobEnd) -> Snapshot {
        self.with(|state| {
            let mut then = self.picture(state, state.output.len(), state.logs.len());
            then.status = end.status;
            then.output = self.output_in(state, state.output.len(), end.status);
            then.error.clone_from(&end.error);
            then.completed_at = Some(end.completed_at);
            then.predict_time = end.predict_time;
            then
        })
    }

    /// Ends the job: from here on everybody can see it.
    pub(crate) fn end(&self, end: JobEnd) {
        self.with(|state| {
            state.status = end.status;
            state.error = end.error;
            state.completed_at = Some(end.completed_at);
            state.predict_time = end.predict_time;
            state.tell(|| StreamEvent::Completed);
        });
        self.live.changed.notify_waiters();
    }

    /// Roughly what keeping the job costs, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.with(|state| {
            let outputs = state
                .output
                .iter()
                .map(|value| value.len() + 64)
                .sum::<usize>();
            let history = state.history.as_ref().map_or(0, History::weight);
            512 + self.input_len() + state.logs.len() + outputs + history
        })
    }
}

/// From one moment to a later one; nothing when the clock was set back between them.
fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// How a job is about to end.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) status: Status,
    error: Option<String>,
    completed_at: Timestamp,
    /// How long the model worked on it; absent if it never began.
    pub(crate) run_time: Option<Duration>,
    predict_time: Option<f64>,
}
