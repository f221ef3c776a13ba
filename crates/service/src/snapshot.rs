//! A job at one moment, for whoever tells somebody about it.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::record::{Target, WebhookSpec};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::{Account, JobId, JobKind, Status};

/// A job at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The job.
    pub id: JobId,
    /// Whose it is.
    pub account: Account,
    /// Which model it is for.
    pub target: Arc<Target>,
    /// Which function it is for.
    pub kind: JobKind,
    /// Where it is in its life.
    pub status: Status,
    /// What it has printed.
    pub logs: String,
    /// What it has given so far, as JSON: the returned value, or a list while values still come.
    pub output: Option<Bytes>,
    /// Why it failed.
    pub error: Option<String>,
    /// What the model noted.
    pub metrics: Map<String, Value>,
    /// What is known about the remote worker; absent for jobs that run here.
    pub remote: Option<Box<RemoteFacts>>,
    /// How long it took, in seconds, when it is over.
    pub predict_time: Option<f64>,
    /// The checked input with secrets masked.
    pub input: Bytes,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the model began.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub completed_at: Option<Timestamp>,
    /// After this moment nobody wants it any more.
    pub deadline: Option<Timestamp>,
    /// Who is told about it.
    pub hook: Option<Arc<WebhookSpec>>,
    /// Whether input, output and logs were removed because their time was over.
    pub data_removed: bool,
}

/// How much of a job somebody has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadPosition {
    /// Values.
    pub outputs: usize,
    /// Bytes of the logs.
    pub logs: usize,
}

/// What a job has given beyond what was seen.
#[derive(Debug, Clone)]
pub struct OutputDelta {
    /// Values, each one JSON text.
    pub outputs: Vec<Bytes>,
    /// What it has printed.
    pub logs: String,
    /// Whether nothing more will come.
    pub over: bool,
}

/// How a job ends.
#[derive(Debug)]
pub enum TerminalState {
    /// With what it has given.
    Succeeded,
    /// With an error.
    Failed(String),
    /// Because somebody asked, or the caller's deadline has come.
    Canceled,
    /// Because the caller's deadline has come before the model began.
    Aborted,
}
