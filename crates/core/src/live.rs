//! The port of live events: what running jobs produce, shared by all API processes of a cluster.
//!
//! A director publishes the events of a job in order, each with an offset. Any API process reads them. They
//! are kept for a limited time and in a limited number, and may be lost: the store has the end of the job,
//! with its whole output.

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::leases::JobRef;
use crate::{LogSource, Metric, wire};

/// A failed operation of the live events. A later attempt may succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the live events are unavailable: {0}")]
pub struct LiveError(pub String);

/// One event of a running job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveEvent {
    /// The model began.
    Started {
        /// When it began.
        at: Timestamp,
    },
    /// The model wrote to stdout or stderr.
    Log {
        /// The stream that it wrote to.
        source: LogSource,
        /// The text.
        text: String,
    },
    /// The model produced a value.
    Output {
        /// The value as JSON.
        #[serde(with = "wire::json")]
        json: Bytes,
        /// Whether it is the returned value, and not one of several yielded values.
        returned: bool,
    },
    /// The model recorded a metric.
    Metric(Metric),
}

/// Consecutive events of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveBatch {
    /// The attempt that produced the events.
    pub attempt: u32,
    /// The number of events of this attempt before the first one here.
    pub offset: u64,
    /// The events.
    pub events: Vec<LiveEvent>,
}

/// A position in the events of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LivePosition {
    /// The attempt that produces the events; 0 before the first.
    pub attempt: u32,
    /// The number of its events that were read.
    pub offset: u64,
}

/// Why a job wakes those that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeReason {
    /// It has new events.
    Events,
    /// It has ended: the store has its end.
    Ended,
}

/// The live events of running jobs.
#[async_trait]
pub trait Live: Send + Sync {
    /// Adds events of a job, and wakes those that wait for it. Events that were added before are ignored. Returns the offset of the next event
    /// that is expected: if it is smaller than the end of the batch, the events from there on must be sent
    /// again. A batch of an earlier attempt than the last is ignored.
    async fn publish(&self, job: &JobRef, batch: LiveBatch) -> Result<u64, LiveError>;

    /// The events of a job after a position: the rest of its attempt, or the later attempt from its first
    /// event that is kept. `None` when there are none yet.
    async fn read(&self, job: &JobRef, after: LivePosition)
    -> Result<Option<LiveBatch>, LiveError>;

    /// Wakes every process that has subscribed to this job.
    async fn wake(&self, job: &JobRef, reason: WakeReason) -> Result<(), LiveError>;

    /// From now on [`Live::next_wake`] reports wake-ups of this job.
    async fn subscribe(&self, job: &JobRef) -> Result<(), LiveError>;

    /// Ends a subscription.
    async fn unsubscribe(&self, job: &JobRef) -> Result<(), LiveError>;

    /// Waits for the next wake-up of a job that this process has subscribed to. One task of the process
    /// calls it. Wake-ups may be lost: callers also poll.
    async fn next_wake(&self) -> (JobRef, WakeReason);

    /// Tells the director with this name to stop a job.
    async fn request_stop(&self, holder: &str, job: &JobRef) -> Result<(), LiveError>;

    /// Waits for a request to stop a job of the director with this name. May miss requests: the reply to a
    /// heartbeat repeats them.
    async fn stop_requested(&self, holder: &str) -> JobRef;
}
