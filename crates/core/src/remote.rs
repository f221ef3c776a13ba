//! What is known about a job that a remote worker runs, besides its output. Executors for remote
//! workers report it; the API of those workers renders it. It is not part of the model's metrics.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job_attempt::JobAttempt;

/// One change of [`RemoteFacts`].
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteFact {
    /// This worker has the job now.
    Worker(String),
    /// The worker of the job was lost.
    Lost(JobAttempt),
    /// Another worker got the job at this time, after one was lost.
    RetriedAt(Timestamp),
    /// How many times the job was given to another worker.
    Retries(u64),
    /// The progress that the worker reports; `None` or `null` removes it.
    Progress(Option<Value>),
    /// Whether the job was begun and waits for another worker.
    Waiting(bool),
    /// The output arrives in parts.
    Streamed,
    /// The value that the worker returned, when the parts are something else; `null` counts as
    /// none.
    FinalOutput(Value),
    /// The worker returned nothing, which is less than `null`.
    NoOutput,
    /// A worker had the job for too long.
    TimedOut,
}

/// What is known about a job that a remote worker runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteFacts {
    /// The worker that has the job, or had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How many times the job was given to another worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u64>,
    /// The attempts whose workers were lost, oldest first, numbered from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<JobAttempt>,
    /// When the current worker got the job, if it is not the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retried_at: Option<Timestamp>,
    /// The progress that the worker reports. Removed at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
    /// Whether the job was begun and waits for another worker.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
    /// Whether the output arrives in parts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub streamed: bool,
    /// The value that the worker returned, when the parts are something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_output: Option<Value>,
    /// Whether the worker returned nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_output: bool,
    /// Whether a worker had the job for too long.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

impl RemoteFacts {
    /// Applies one change.
    pub fn apply(&mut self, fact: RemoteFact) {
        match fact {
            RemoteFact::Worker(worker) => self.worker = Some(worker),
            RemoteFact::Lost(attempt) => {
                self.retried_at = None;
                self.lost.push(attempt);
            }
            RemoteFact::RetriedAt(at) => self.retried_at = Some(at),
            RemoteFact::Retries(retries) => self.retries = Some(retries),
            RemoteFact::Progress(progress) => self.progress = progress.filter(is_value),
            RemoteFact::Waiting(waiting) => self.waiting = waiting,
            RemoteFact::Streamed => self.streamed = true,
            RemoteFact::FinalOutput(value) => self.final_output = Some(value).filter(is_value),
            RemoteFact::NoOutput => self.no_output = true,
            RemoteFact::TimedOut => self.timed_out = true,
        }
    }
}

fn is_value(value: &Value) -> bool {
    !value.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_attempt::AttemptEnd;
    use serde_json::json;

    #[test]
    fn facts_replace_each_other_and_empty_ones_are_not_stored() {
        let mut facts = RemoteFacts::default();
        let lost = JobAttempt {
            number: 1,
            started_at: None,
            ended_at: None,
            end: Some(AttemptEnd::Lost),
            runner: Some("a".to_owned()),
        };
        for fact in [
            RemoteFact::Worker("a".to_owned()),
            RemoteFact::Progress(Some(json!({"step": 1}))),
            RemoteFact::Waiting(true),
            RemoteFact::Lost(lost),
            RemoteFact::RetriedAt(Timestamp::UNIX_EPOCH),
            RemoteFact::Retries(1),
            RemoteFact::Worker("b".to_owned()),
            RemoteFact::Waiting(false),
            RemoteFact::Progress(None),
            RemoteFact::FinalOutput(json!([1])),
        ] {
            facts.apply(fact);
        }
        let stored = serde_json::to_value(&facts).unwrap();
        assert_eq!(
            stored,
            json!({
                "worker": "b",
                "retries": 1,
                "lost": [{"number": 1, "end": "lost", "runner": "a"}],
                "retried_at": "1970-01-01T00:00:00Z",
                "final_output": [1],
            })
        );
    }
}
