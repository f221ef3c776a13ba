//! The changes of a job's state. Its tracker is the only caller.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::remote::RemoteFact;
use tidegate_core::{LogSource, Metric, MetricMode, Status, Step, metrics};

use super::times::between;
use super::{Job, JobTimes, MAX_LOGS, MAX_METRICS, OutputTooLarge, VALUE_OVERHEAD, now};
use crate::snapshot::{ReadPosition, Snapshot, TerminalState};
use crate::stream::{History, StreamEvent};

/// `log` and `output` return the position that [`Job::snapshot_at`] needs to render a webhook
/// later.
impl Job {
    pub(crate) fn assign(&self) {
        self.with(|state| {
            state
                .step(Step::Assign)
                .expect("a new job is assigned once");
            if let Some(open_jobs) = &state.counted_in {
                open_jobs.start(&self.inner.account, self.inner.created_at);
            }
        });
    }

    pub(crate) fn begin(&self, at: Timestamp) {
        self.with(|state| {
            state
                .step(Step::Begin)
                .expect("an assigned job begins once");
            state.started_at = Some(at);
            state.record_event(|| StreamEvent::Start);
        });
        self.inner.changed.notify_waiters();
    }

    /// The start time of a job that starts now; never before it was created.
    pub(crate) fn start_time(&self) -> Timestamp {
        now().max(self.inner.created_at)
    }

    /// The time that the job waited in the queue if it began at `began_at`.
    pub(crate) fn queue_time(&self, began_at: Timestamp) -> Duration {
        between(self.inner.created_at, began_at)
    }

    pub(crate) fn log(&self, source: LogSource, text: &str) -> ReadPosition {
        let position = self.with(|state| {
            if !state.logs_full && state.logs.len() + text.len() > MAX_LOGS {
                state.logs_full = true;
                state
                    .logs
                    .push_str("\n[logs truncated: longer than 16 MiB]\n");
                state.event_positions.add_logs(state.logs.len());
            }
            if !state.logs_full {
                state.logs.push_str(text);
                state.event_positions.add_logs(state.logs.len());
                state.record_event(|| StreamEvent::Log {
                    source,
                    text: text.into(),
                });
            }
            state.position()
        });
        self.inner.changed.notify_waiters();
        position
    }

    /// Adds a warning to the job and its logs.
    pub(crate) fn warn(&self, warning: String) -> ReadPosition {
        let line = format!("Warning: {warning}\n");
        self.with(|state| state.warnings.push(warning));
        self.log(LogSource::Stderr, &line)
    }

    pub(crate) fn metric(&self, metric: Metric) {
        self.with(|state| {
            // Replacing a value takes no more memory, and the last value must not be lost: not
            // counted.
            let replaces =
                metric.mode == MetricMode::Replace && state.metrics.contains_key(&metric.name);
            if !replaces {
                state.metrics_count += 1;
                if state.metrics_count > MAX_METRICS {
                    return;
                }
            }
            metrics::fold(&mut state.metrics, &metric);
            state.record_event(|| StreamEvent::Metric(Arc::new(metric)));
        });
        self.inner.changed.notify_waiters();
    }

    pub(crate) fn remote_fact(&self, fact: RemoteFact) {
        self.with(|state| state.remote.get_or_insert_default().apply(fact));
        self.inner.changed.notify_waiters();
    }

    pub(crate) fn output(&self, json: Bytes) -> Result<ReadPosition, OutputTooLarge> {
        let position = self.with(|state| {
            state.output_bytes += json.len() + VALUE_OVERHEAD;
            if state.output_bytes > self.inner.max_output {
                return Err(OutputTooLarge {
                    limit: self.inner.max_output,
                });
            }
            let index = state.output.len();
            state.output.push(json.clone());
            state.record_event(|| StreamEvent::Output { index, chunk: json });
            let position = state.position();
            state.event_positions.add_output(position);
            Ok(position)
        })?;
        self.inner.changed.notify_waiters();
        Ok(position)
    }

    /// Records the returned value of a job that does not yield.
    pub(crate) fn returned(&self, json: Bytes) -> Result<ReadPosition, OutputTooLarge> {
        // Set before the value is added, so that no reader sees it as one of a list.
        self.with(|state| state.returned = true);
        self.output(json)
    }

    /// Decides how the job ends. It is decided once, before it is stored, so that the store,
    /// webhooks and readers report the same end. `None` when the job has ended already.
    pub(crate) fn decide_end(&self, terminal: TerminalState) -> Option<JobEnd> {
        let (from, started_at, cancel_requested) = self.with(|state| {
            state.end_decided = true;
            (state.status, state.started_at, state.cancel_requested)
        });
        let completed_at = now().max(started_at.unwrap_or(self.inner.created_at));
        // A client that was promised a cancel sees a canceled job, even if the model was faster.
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
        // A queued job cannot fail; it fails in the step that follows, when it is assigned a slot.
        let from = if step == Step::Fail && from == Status::Queued {
            Status::Starting
        } else {
            from
        };
        let run_time = started_at.map(|began| between(began, completed_at));
        Some(JobEnd {
            status: from.after(step).ok()?,
            error,
            completed_at,
            run_time,
            times: Some(JobTimes {
                predict_time: run_time.unwrap_or_default().as_secs_f64(),
                ..JobTimes::default()
            }),
        })
    }

    /// The end of a recorded job that has no tracker; `None` when it has ended already.
    pub(crate) fn end_without_run(&self, terminal: TerminalState) -> Option<JobEnd> {
        Some(JobEnd {
            run_time: None,
            times: None,
            ..self.decide_end(terminal)?
        })
    }

    /// The state of the job after this end.
    pub(crate) fn snapshot_with(&self, end: &JobEnd) -> Snapshot {
        self.with(|state| {
            let mut snapshot = self.snapshot_of(state, state.output.len(), state.logs.len());
            snapshot.status = end.status;
            snapshot.output = self.output_json(state, state.output.len(), end.status);
            snapshot.error.clone_from(&end.error);
            snapshot.completed_at = Some(end.completed_at);
            snapshot.times = end.times;
            snapshot
        })
    }

    /// Makes the end visible to all readers.
    pub(crate) fn end(&self, end: JobEnd) {
        self.with(|state| {
            state.stop_counting(&self.inner.account, self.inner.created_at);
            state.status = end.status;
            state.error = end.error;
            state.completed_at = Some(end.completed_at);
            state.times = end.times.map(Box::new);
            state.event_positions.end_logs(state.logs.len());
            state.record_event(|| StreamEvent::Completed);
        });
        self.inner.changed.notify_waiters();
    }

    /// The approximate memory that the job takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.with(|state| {
            let outputs = state
                .output
                .iter()
                .map(|value| value.len() + 64)
                .sum::<usize>();
            let history = state.history.as_ref().map_or(0, History::weight);
            let events = state.event_positions.weight();
            512 + self.input_len() + state.logs.len() + outputs + events + history
        })
    }
}

/// The end of a job, before it is visible.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) status: Status,
    error: Option<String>,
    completed_at: Timestamp,
    /// The time between begin and end; `None` if the job never began.
    pub(crate) run_time: Option<Duration>,
    times: Option<JobTimes>,
}

impl JobEnd {
    /// The same end with the times that the tracker measured; `run_time` is absent if the model did
    /// not end the job by itself.
    pub(crate) fn with_times(mut self, waits: JobTimes, run_time: Option<Duration>) -> Self {
        if let Some(times) = &mut self.times {
            let predict_time = run_time.map_or(times.predict_time, |time| time.as_secs_f64());
            *times = JobTimes {
                predict_time,
                ..waits
            };
        }
        self
    }
}

impl JobEnd {
    /// The end of the same run as failed, unless it is canceled.
    pub(crate) fn into_failed(self, error: String) -> Self {
        match self.status {
            Status::Canceled => self,
            _ => Self {
                status: Status::Failed,
                error: Some(error),
                ..self
            },
        }
    }

    /// The end of the same run as canceled.
    pub(crate) fn into_canceled(self) -> Self {
        Self {
            status: Status::Canceled,
            error: None,
            ..self
        }
    }
}
