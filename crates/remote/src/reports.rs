//! The reports of workers about their jobs, and the events that they become.

use bytes::Bytes;
use serde_json::Value;
use tidegate_core::remote::RemoteFact;
use tidegate_core::{Event, Outcome, OutputValue};

/// The key in a job's context that says how long one worker may run the job, in milliseconds.
pub const EXECUTION_TIMEOUT: &str = "execution_timeout_ms";

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
    /// Every client sees it. If it is a result, the end of the job is committed.
    Applied,
    /// It is kept until the job is started here.
    Buffered,
    /// It came too late, or from a worker that does not have the job.
    Ignored,
}

/// Why the worker has to send a report again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReportRejection {
    /// The end of the job is not committed: the store does not accept it, or the server shuts down.
    #[error("the end of the job is not stored yet; send the result again")]
    NotCommitted,
    /// The job has too many unpublished reports.
    #[error("the job has too many unpublished reports; send this one again")]
    TooManyReports,
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
        let mut events = vec![Event::Remote(RemoteFact::Progress(None))];
        let Self { output, error } = self;
        if let Some(error) = error {
            events.extend(output.and_then(|json| {
                let value = serde_json::from_slice(&json).ok()?;
                Some(Event::Remote(RemoteFact::FinalOutput(value)))
            }));
            events.push(Event::Ended(Outcome::Failed { error }));
            return events;
        }
        let outcome = match output {
            None => {
                events.push(Event::Remote(RemoteFact::NoOutput));
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
                    events.push(Event::Remote(RemoteFact::FinalOutput(last)));
                }
                None
            }
        };
        events.push(Event::Ended(Outcome::Succeeded { output: outcome }));
        events
    }
}
