//! The port of leases in a cluster: the directors that run jobs hold leases, and the store decides who holds
//! which.
//!
//! A lease lives as long as its holder sends heartbeats. [`Leases::expired`], which a cluster calls regularly,
//! finds the leases whose holders are dead; time in which it was not called does not count. A lease that has
//! expired is lost only when the job is leased again or ended: a late end of the last holder counts. The
//! clock of the store decides; callers pass durations.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lease::{Fence, Nonce};
use crate::outbox::OutboxMessage;
use crate::record::{JobRecord, JobSpec};
use crate::store::StoreError;
use crate::{Account, JobId, Status, wire};

/// A process that takes leases.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    /// The name, which stays the same when the process is started again.
    pub name: String,
    /// When the process started, in microseconds since 1970. Among processes with the same name the one
    /// that started last supersedes the others, and their leases are lost at once.
    pub boot: u64,
}

/// A job of an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobRef {
    /// The account that owns the job.
    #[serde(with = "wire::account")]
    pub account: Account,
    /// The id of the job.
    pub id: JobId,
}

impl From<&JobSpec> for JobRef {
    fn from(spec: &JobSpec) -> Self {
        Self {
            account: spec.account.clone(),
            id: spec.id.clone(),
        }
    }
}

/// A lease and its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// The job.
    pub job: JobRef,
    /// The fencing token of the lease.
    pub fence: Fence,
}

/// A request of a director for the lease of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The job.
    pub job: JobRef,
    /// The director.
    pub holder: Holder,
    /// A repeated request with the same nonce gets the same lease.
    pub nonce: Nonce,
    /// How long the holder lives from now on without a heartbeat.
    pub lasts: Duration,
    /// How many times the job may be started in all.
    pub max_attempts: u32,
}

/// The result of a request of a director for a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum AcquireResult {
    /// The director may run the job.
    Granted(Box<GrantedLease>),
    /// Another director holds the lease.
    HeldByAnother,
    /// A cancel is recorded: the job must end as canceled.
    CancelRequested(Box<JobRecord>),
    /// The deadline has passed: the job must end.
    Overdue(Box<JobRecord>),
    /// The job was started as often as it may be.
    Exhausted(Box<JobRecord>),
    /// The job has ended.
    Ended,
    /// There is no such job.
    Unknown,
    /// A process with the same name has started later: this one must stop.
    Superseded,
}

/// A lease that was granted to a director.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantedLease {
    /// The job: `Processing`, with the number of this attempt.
    pub record: JobRecord,
    /// The fencing token.
    pub fence: Fence,
    /// The time until the job expires.
    pub remaining: Option<Duration>,
}

/// A heartbeat of a director.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHeartbeat {
    /// The director.
    pub holder: Holder,
    /// How long it lives from now on without another heartbeat.
    pub lasts: Duration,
    /// The leases that it holds.
    pub leases: Vec<HeldLease>,
}

/// The reply to a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatResult {
    /// A process with the same name has started later: this one must stop.
    pub is_superseded: bool,
    /// The jobs that must be canceled.
    pub cancel: Vec<JobRef>,
    /// The leases that are lost: the job has ended, or has a later lease.
    pub lost: Vec<JobRef>,
    /// The live leases of the director that the heartbeat does not list. They are new, or were granted by a
    /// request that arrived late, and would live as long as the director.
    pub unlisted: Vec<HeldLease>,
}

/// What the record of a job says about its course.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobProgress {
    /// The job.
    pub job: JobRef,
    /// Its status.
    pub status: Status,
    /// The number of its last attempt; 0 before the first.
    pub attempt: u32,
    /// When the last attempt began.
    pub started_at: Option<Timestamp>,
}

/// Jobs of a model with the attempts that directors have begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunAttempts {
    /// The clock of the store before it looked for them.
    pub at: Timestamp,
    /// The jobs, in any order.
    pub jobs: Vec<JobProgress>,
}

/// How much the directors and the senders of webhooks have to do, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// The leases that have not expired: the jobs that directors run.
    pub leases: usize,
    /// The directors that live.
    pub directors: usize,
    /// How long the webhook message that is due the longest has not been sent.
    pub oldest_due_message: Option<Duration>,
}

/// The leases of a cluster, and the bookkeeping that finds jobs that no director runs.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Leases a job to a director. A live lease of another holder refuses it; an expired one, and one of a
    /// superseded process, does not.
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireResult, StoreError>;

    /// Keeps a director and its leases alive.
    async fn heartbeat(&self, beat: LeaseHeartbeat) -> Result<HeartbeatResult, StoreError>;

    /// The director that holds the live lease of a job, if there is one.
    async fn holder_of(&self, job: &JobRef) -> Result<Option<Holder>, StoreError>;

    /// Gives a lease back, because the model did not start: the attempt does not count. Returns whether the
    /// lease was the last one and the job is open.
    async fn release(&self, lease: &HeldLease) -> Result<bool, StoreError>;

    /// Stores an interim webhook message about a running job. It replaces the previous one if that was not
    /// sent yet, and is never sent after the final message, which must be stored without a claim. Settled
    /// interim messages are deleted. Returns whether the lease is the last one and the job is open;
    /// otherwise nothing is stored.
    async fn put_interim(
        &self,
        lease: &HeldLease,
        message: OutboxMessage,
    ) -> Result<bool, StoreError>;

    /// Ends the life of a director that has stopped in order: its leases are lost at once.
    async fn retire(&self, holder: &Holder) -> Result<(), StoreError>;

    /// Open jobs whose last lease has expired, at most `limit`. Each expired lease is returned once; from
    /// then on its job is not known to be in the queue. If this was not called for more than half of
    /// `lasts`, the holders that lived before live for `lasts` more: they could not send heartbeats.
    async fn expired(&self, lasts: Duration, limit: usize) -> Result<Vec<JobRecord>, StoreError>;

    /// The progress of these jobs, in any order. Jobs that do not exist are absent.
    async fn progress(&self, jobs: &[JobRef]) -> Result<Vec<JobProgress>, StoreError>;

    /// The jobs of a model whose last attempts directors have begun at this time or later, by the clock of the
    /// store: those that run, and those that have ended. Without a time, all that run now. A job that a
    /// director has given back, or lost, is absent. Found are also jobs that were ended by directors whose
    /// clocks are ten seconds behind.
    async fn begun(
        &self,
        model: &str,
        since: Option<Timestamp>,
    ) -> Result<BegunAttempts, StoreError>;

    /// Records that these jobs are in the queue. `epoch` is the epoch of the queue before they were pushed.
    /// If another one is recorded, the queue may have lost them since, and nothing is recorded.
    async fn mark_queued(&self, jobs: &[JobRef], epoch: &str) -> Result<(), StoreError>;

    /// Records the epoch of the queue, which may have lost the entries of earlier ones: from then on no open
    /// job is known to be in the queue unless it is marked with this epoch. Returns whether that is complete;
    /// if not, another epoch was recorded meanwhile.
    async fn mark_all_unqueued(&self, epoch: &str) -> Result<bool, StoreError>;

    /// The last recorded epoch of the queue, if the marks of all earlier epochs were removed.
    async fn queue_epoch(&self) -> Result<Option<String>, StoreError>;

    /// Records of open jobs without a live lease that they are not known to be in the queue, of those that were
    /// accepted, released, or returned by [`Leases::claim_unqueued`] at least `age` ago, oldest first, at most
    /// `limit`. They count as returned now. Returns how many there were.
    async fn unmark_queued(&self, age: Duration, limit: usize) -> Result<usize, StoreError>;

    /// Open jobs without a live lease that are not known to be in the queue and were accepted, released or
    /// returned by this method at least `age` ago, oldest first, at most `limit`. So of several processes
    /// one puts a job into the queue again.
    async fn claim_unqueued(
        &self,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<JobRecord>, StoreError>;

    /// Counts leases, directors and messages that are due. Takes the same time however many jobs wait.
    async fn counts(&self) -> Result<ClusterCounts, StoreError>;
}
