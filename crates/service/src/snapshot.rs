//! The state of a job at one time, for the renderers of the APIs and for webhooks.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::record::{Target, WebhookSpec};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::{Account, JobId, JobKind, Status};

use crate::job::JobTimes;

/// The state of a job at one time.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The id, unique within the account.
    pub id: JobId,
    /// The account that owns the job.
    pub account: Account,
    /// The model and version that run it.
    pub target: Arc<Target>,
    /// The function of the model that it calls.
    pub kind: JobKind,
    /// The status.
    pub status: Status,
    /// The output of the model on stdout and stderr.
    pub logs: String,
    /// The warnings about input and output, which are in the logs as well. A job that is read from the
    /// store after its end has them in the logs only.
    pub warnings: Vec<String>,
    /// The output so far, as JSON: the returned value, or a list of the yielded values.
    pub output: Option<Bytes>,
    /// The error of a failed job.
    pub error: Option<String>,
    /// The metrics that the model recorded.
    pub metrics: Map<String, Value>,
    /// Facts about the remote worker; `None` for jobs that run in this server.
    pub remote: Option<Box<RemoteFacts>>,
    /// How long it waited and ran, once it has ended.
    pub times: Option<JobTimes>,
    /// The validated input with secrets masked.
    pub input: Bytes,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the model began to run it.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// When the job is aborted or canceled if it has not ended.
    pub deadline: Option<Timestamp>,
    /// The receiver of its webhooks.
    pub hook: Option<Arc<WebhookSpec>>,
    /// Whether input, output and logs were removed because their retention time has passed.
    pub data_removed: bool,
}

/// A position in the output and logs of a job: everything before it was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadPosition {
    /// The number of output values.
    pub outputs: usize,
    /// The number of bytes of logs.
    pub logs: usize,
}

/// The output and logs of a job after a [`ReadPosition`].
#[derive(Debug, Clone)]
pub struct OutputDelta {
    /// The output values, each as JSON.
    pub outputs: Vec<Bytes>,
    /// The logs.
    pub logs: String,
    /// Whether the job has ended.
    pub ended: bool,
}

/// One event of a job's output stream. The position after it identifies the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputEvent {
    /// The model produced a value.
    Output {
        /// The value as JSON.
        json: Bytes,
        /// The position after the event.
        position: ReadPosition,
    },
    /// The model wrote to stdout or stderr.
    Logs {
        /// What it wrote.
        text: String,
        /// The position after the event.
        position: ReadPosition,
    },
}

impl OutputEvent {
    /// The position after the event.
    pub fn position(&self) -> ReadPosition {
        match self {
            Self::Output { position, .. } | Self::Logs { position, .. } => *position,
        }
    }
}

/// How far a client has read the output stream of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputCursor {
    /// What it has read.
    pub position: ReadPosition,
    /// The attempt that has produced it, if it is known.
    pub attempt: Option<u32>,
}

/// The job runs again: what a client has read of its output stream does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the director that ran the job was lost, and the job runs again from the beginning")]
pub struct JobRestarted;

/// The next events of a job's output stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputEvents {
    /// The attempt that produced them; known for jobs that directors run.
    pub attempt: Option<u32>,
    /// The events, in the order in which the model produced them.
    pub events: Vec<OutputEvent>,
    /// Whether the job has ended and no event follows.
    pub ended: bool,
}

/// A change of a job: another status, more output, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobChange {
    /// The status.
    pub status: Status,
    /// The next events of the output stream, if there are any.
    pub events: Option<OutputEvents>,
}

/// How a job ends.
#[derive(Debug)]
pub enum TerminalState {
    /// The model succeeded; the output is complete.
    Succeeded,
    /// The job failed with this error.
    Failed(String),
    /// A client canceled the job, or its deadline passed while the model ran.
    Canceled,
    /// The deadline passed before the model began.
    Aborted,
}
