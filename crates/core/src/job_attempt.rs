//! The attempts of a job: how often it was given to a model, and how each attempt ended.
//!
//! Most jobs have one attempt, which their record describes. A store records an attempt separately only when
//! the job is given to a model again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Status;

/// One attempt to run a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAttempt {
    /// Its number; the first is 1.
    pub number: u32,
    /// When it began, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended; of a lost one, when the server noticed that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<AttemptEnd>,
    /// The director or the remote worker that ran it; absent if the server ran it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// The job succeeded.
    Succeeded,
    /// The job failed.
    Failed,
    /// The job was canceled.
    Canceled,
    /// The deadline of the job passed before the model began.
    Aborted,
    /// What ran it was lost: the server, the director, or the remote worker.
    Lost,
    /// The director gave the job back before the model began.
    Released,
}

impl AttemptEnd {
    /// The end of the last attempt of a job with this status; `None` for an open job.
    pub fn of_job(status: Status) -> Option<Self> {
        match status {
            Status::Queued | Status::Starting | Status::Processing => None,
            Status::Succeeded => Some(Self::Succeeded),
            Status::Failed => Some(Self::Failed),
            Status::Canceled => Some(Self::Canceled),
            Status::Aborted => Some(Self::Aborted),
        }
    }
}

/// The most earlier attempts that are kept for a job. A director may give a job back any number of times.
pub const MAX_EARLIER_ATTEMPTS: usize = 50;
