//! What workers say about their jobs, and how it becomes events.

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::{Event, Metric, MetricMode, Outcome, OutputValue};

/// The note of a job that says how long one worker may have it, in milliseconds.
pub const EXECUTION_TIMEOUT: &str = "execution_timeout_ms";

/// What is noted about a job beside its output, as metrics of it: whoever shows the job reads them.
pub mod note {
    /// Who has it, or had it last.
    pub const WORKER: &str = "worker";
    /// AssignmentState often it was sent to another worker.
    pub const RETRIES: &str = "retries";
    /// What the worker says about how far it is. Gone at the end.
    pub const PROGRESS: &str = "progress";
    /// That it was begun and waits for another worker.
    pub const WAITS: &str = "waits";
    /// That its output came in parts.
    pub const STREAMED: &str = "streamed";
    /// What the worker gave in the end, when that is not what the parts are.
    pub const FINAL_OUTPUT: &str = "final_output";
    /// That the worker gave nothing, which is less than `null`.
    pub const NO_OUTPUT: &str = "no_output";
    /// That a worker had it for too long.
    pub const TIMED_OUT: &str = "timed_out";
}

/// One report of a worker about a job.
#[derive(Debug, Clone)]
pub enum JobReport {
    /// AssignmentState far it is, in its own words.
    Progress(Value),
    /// A part of the output, as JSON.
    Part(Bytes),
    /// It is over.
    Done(WorkerResult),
    /// It is over, and its output came in parts before. Worth nothing without them.
    StreamDone(WorkerResult),
}

/// AssignmentState a job ended in the hands of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerResult {
    /// What came of it, as JSON.
    pub output: Option<Bytes>,
    /// Why it failed; absent when it did not.
    pub error: Option<String>,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportOutcome {
    /// It is told.
    Applied,
    /// It is kept until the job begins here.
    Buffered,
    /// It came too late, or from somebody who does not have the job.
    Ignored,
}

impl WorkerResult {
    /// Whether nothing is in it but that the job is over.
    pub(crate) fn is_bare(&self) -> bool {
        self.error.is_none()
            && self
                .output
                .as_ref()
                .is_none_or(|json| json.as_ref() == b"[]")
    }

    pub(crate) fn weight(&self) -> usize {
        let len = |text: Option<usize>| text.unwrap_or_default();
        128 + len(self.output.as_ref().map(Bytes::len)) + len(self.error.as_ref().map(String::len))
    }

    /// The last events of a job that has given so many parts.
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
                // A worker may send all parts once more as a list; nobody needs them twice.
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

/// Notes something about a job in the place of what was there; `Null` takes it away.
pub(crate) fn noted(name: &str, value: Value) -> Event {
    Event::Metric(Metric {
        name: name.to_owned(),
        value,
        mode: MetricMode::Replace,
    })
}
