//! The reports of workers about their jobs, and the events that they become.

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::{Event, Metric, MetricMode, Outcome, OutputValue};

/// The key in a job's context that says how long one worker may run the job, in milliseconds.
pub const EXECUTION_TIMEOUT: &str = "execution_timeout_ms";

/// Facts about a job besides its output. They are stored as metrics of the job; the API reads them
/// when it renders the job.
pub mod note {
    /// The worker that has the job, or had it last.
    pub const WORKER: &str = "worker";
    /// How often the job was given to another worker.
    pub const RETRIES: &str = "retries";
    /// The progress that the worker reported. Removed when the job ends.
    pub const PROGRESS: &str = "progress";
    /// Present while the job is started and waits for another worker.
    pub const WAITS: &str = "waits";
    /// Present when the output was streamed.
    pub const STREAMED: &str = "streamed";
    /// The final output, when it differs from the list of streamed parts.
    pub const FINAL_OUTPUT: &str = "final_output";
    /// Present when the worker sent no output, which is not the same as `null`.
    pub const NO_OUTPUT: &str = "no_output";
    /// Present when the job exceeded its execution timeout.
    pub const TIMED_OUT: &str = "timed_out";
}

/// A report of a worker about a job.
#[derive(Debug, Clone)]
pub enum JobReport {
    /// Progress, in the handler's own format.
    Progress(Value),
    /// A part of a streamed output, as JSON.
    Part(Bytes),
    /// The job has ended.
    Done(WorkerResult),
    /// The job has ended, and its output was streamed before. Useless without these parts.
    StreamDone(WorkerResult),
}

/// How a job ended on a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerResult {
    /// The output, as JSON.
    pub output: Option<Bytes>,
    /// Why the job failed; `None` when it succeeded.
    pub error: Option<String>,
}

/// What happened to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportOutcome {
    /// It became events of the job.
    Applied,
    /// It is kept until the job is started here.
    Buffered,
    /// It came too late, or from a worker that does not have the job.
    Ignored,
}

impl WorkerResult {
    /// Whether it says only that the job has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.error.is_none()
            && self
                .output
                .as_ref()
                .is_none_or(|json| json.as_ref() == b"[]")
    }

    /// Its approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let len = |text: Option<usize>| text.unwrap_or_default();
        128 + len(self.output.as_ref().map(Bytes::len)) + len(self.error.as_ref().map(String::len))
    }

    /// The last events of a job that streamed `parts` parts.
    pub(crate) fn events(self, parts: usize) -> Vec<Event> {
        let mut events = vec![noted(note::PROGRESS, Value::Null)];
        let Self { output, error } = self;
        if let Some(error) = error {
            events.extend(output.and_then(|json| {
                Some(noted(
                    note::FINAL_OUTPUT,
                    serde_json::from_slice(&json).ok()?,
                ))
            }));
            events.push(Event::Ended(Outcome::Failed { error }));
            return events;
        }
        let outcome = match output {
            None => {
                events.push(noted(note::NO_OUTPUT, true.into()));
                None
            }
            Some(json) if parts == 0 => Some(OutputValue {
                json,
                files: Vec::new(),
            }),
            Some(json) => {
                let last: Value = serde_json::from_slice(&json).unwrap_or_default();
                // A worker may repeat all parts as a list, which adds nothing.
                if last.as_array().is_none_or(|all| all.len() != parts) {
                    events.push(noted(note::FINAL_OUTPUT, last));
                }
                None
            }
        };
        events.push(Event::Ended(Outcome::Succeeded { output: outcome }));
        events
    }
}

/// The event that sets a fact about a job; `Null` removes it.
pub(crate) fn noted(name: &str, value: Value) -> Event {
    Event::Metric(Metric {
        name: name.to_owned(),
        value,
        mode: MetricMode::Replace,
    })
}
