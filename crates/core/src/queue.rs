//! The port of the queues in which jobs wait: it decides which job runs next. Callers do not depend
//! on the implementation (the memory of one process, Redis).
//!
//! The store is authoritative, a queue is only a hint. An entry only names a job: the job may
//! already have ended, and a lost entry is created again from the store. A consumer that takes an
//! entry holds it as long as it renews the claim, and acknowledges the entry when it is done. An
//! entry whose claim is no longer renewed is given to another consumer.

mod name;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

pub use self::name::{QueueKind, QueueName};
use crate::record::Target;
use crate::{Account, JobId, JobKind};

/// A failed operation of a queue. A later attempt may succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the queue is unavailable: {0}")]
pub struct QueueError(pub String);

/// The order between the jobs of one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// First in, first out.
    #[default]
    Normal,
    /// After all jobs of the account with normal priority.
    Low,
}

impl Priority {
    /// The key in a job's context that selects [`Priority::Low`] when its value is `true`.
    pub const CONTEXT_KEY: &str = "yields";

    /// The priority that a job's context selects.
    pub fn from_context(context: &BTreeMap<String, String>) -> Self {
        match context.get(Self::CONTEXT_KEY).map(String::as_str) {
            Some("true") => Self::Low,
            Some(_) | None => Self::Normal,
        }
    }
}

/// A job in a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueEntry {
    /// The account that owns the job.
    pub account: Account,
    /// The id of the job.
    pub id: JobId,
    /// The position among the jobs of the account.
    pub priority: Priority,
    /// When the job expires.
    pub deadline: Option<Timestamp>,
    /// What other processes need to know of the job before they read the store. A queue in memory does
    /// not keep it.
    pub details: Option<Arc<EntryDetails>>,
}

/// What the message of a job says besides its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDetails {
    /// The function of the model that the job calls.
    pub kind: JobKind,
    /// The model and version that the job is for.
    pub target: Arc<Target>,
    /// The URL to which the process that runs the job publishes its output.
    pub stream_publish_url: Option<String>,
}

/// Where a queue keeps an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntryPlace {
    /// The stream, which is one shard of the queue.
    pub stream: Arc<str>,
    /// The message in the stream.
    pub message: Arc<str>,
}

/// An entry that a consumer has taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The queue that the entry was taken from.
    pub queue: QueueName,
    /// The entry that was taken.
    pub entry: QueueEntry,
    /// The shard of the queue that the entry was taken from.
    pub stream: Arc<str>,
    /// Whether the entry before this one came from another shard: a process that swaps weights may have
    /// to swap them.
    pub moved: bool,
    /// How often the entry was handed out, this time included. A delivery that its consumer put back does
    /// not count.
    pub deliveries: u32,
    /// Opaque to callers. Each claim of an entry has a different ticket, so that operations with an
    /// older claim have no effect.
    pub ticket: String,
}

/// How an entry is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeOptions {
    /// How long to wait for an entry.
    pub timeout: Duration,
    /// Whether entries of the shard that the last entry came from are taken first.
    pub prefer_same_stream: bool,
}

impl TakeOptions {
    /// Takes an entry of any shard; waits for it up to `timeout`.
    pub fn within(timeout: Duration) -> Self {
        Self {
            timeout,
            prefer_same_stream: false,
        }
    }
}

/// An entry that upkeep has found, waiting or claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundEntry {
    /// The queue of the entry.
    pub queue: QueueName,
    /// The entry.
    pub entry: QueueEntry,
    /// Opaque to callers: where the entry is.
    pub ticket: String,
}

/// An entry that no consumer gets any more, because it cannot be read or was handed out too often.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Identifies the dead letter.
    pub id: String,
    /// The queue that the entry was in.
    pub queue: QueueName,
    /// The entry, if it can be read.
    pub entry: Option<QueueEntry>,
    /// Why the entry is not handed out.
    pub reason: String,
    /// When it was removed from its queue.
    pub at: Timestamp,
    /// The beginning of the message, as text.
    pub data: String,
    /// The size of the message in bytes; 0 if it is not known.
    pub size: usize,
}

/// The result of putting back an entry whose consumer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutBackResult {
    /// The job has no entry.
    NoEntry,
    /// The entry waits already.
    Waiting,
    /// The entry was claimed, and waits again.
    PutBack,
}

/// The number of entries in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Entries that no consumer has taken.
    pub waiting: usize,
    /// Entries that a consumer has taken and not yet acknowledged.
    pub claimed: usize,
}

/// How full a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueUsage {
    /// The queue.
    pub name: QueueName,
    /// The number of its entries.
    pub depth: QueueDepth,
    /// How long ago the oldest waiting entry was pushed.
    pub oldest_wait: Option<Duration>,
}

/// How full all queues are, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStatistics {
    /// The queues that have or had entries.
    pub queues: Vec<QueueUsage>,
    /// The number of dead letters.
    pub dead_letters: usize,
}

/// The queues in which jobs wait.
///
/// The jobs of one account that wait in one queue are handed out in the order in which they were
/// pushed, and a thousand jobs of one account do not delay all jobs of another. The queue in memory
/// promises more: accounts take turns, and jobs with a low priority come last. All methods may be called
/// concurrently, and their futures may be dropped.
///
/// A queue is opened under the name of a consumer, one per process, which takes the entries.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Adds a job behind the other jobs of its account. A job that already waits keeps its
    /// position; a job that is claimed waits again when its claim ends. Returns where the entry is, if
    /// other processes can see it there.
    async fn push(
        &self,
        queue: &QueueName,
        entry: QueueEntry,
    ) -> Result<Option<EntryPlace>, QueueError>;

    /// Waits until more than `more_than` entries wait in a queue, and returns their number. Other
    /// consumers may take them before the caller does.
    async fn wait_for_more_than(
        &self,
        queue: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError>;

    /// Takes the next entry of a queue, or returns `None` at the timeout.
    async fn take(
        &self,
        queue: &QueueName,
        options: TakeOptions,
    ) -> Result<Option<Claim>, QueueError>;

    /// Renews claims whose jobs are still in progress. Returns those that are lost: another consumer
    /// has the entry, or it was removed.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, QueueError>;

    /// Removes a claimed entry, because its job has ended or must not run. Returns whether the
    /// claim still held the entry.
    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError>;

    /// Returns a claimed entry to its former position, because its job cannot run now. This delivery
    /// does not count, unless the claim came from [`Queue::lost`].
    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError>;

    /// Lets the entry of a job wait again, also if a consumer holds it: that consumer is known to be gone. Only queues
    /// that processes share have such consumers.
    async fn put_back_job(
        &self,
        _queue: &QueueName,
        _account: &Account,
        _id: &JobId,
    ) -> Result<PutBackResult, QueueError> {
        Ok(PutBackResult::NoEntry)
    }

    /// Removes the entry of a job that ended while it waited, so that no consumer gets it.
    async fn remove(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError>;

    /// Entries whose deadline has passed, waiting or claimed, at most `limit`. They are returned again
    /// until they are settled.
    async fn overdue(&self, limit: usize) -> Result<Vec<FoundEntry>, QueueError>;

    /// Records that the job of an overdue entry was ended. An entry that waits is removed; a claim on
    /// it stays valid.
    async fn settle(&self, overdue: &FoundEntry) -> Result<(), QueueError>;

    /// The time of the next deadline, if it is known.
    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError>;

    /// Claims that were not renewed for `idle`, at most `limit`. They are transferred to the upkeep of
    /// this process.
    async fn lost(&self, idle: Duration, limit: usize) -> Result<Vec<Claim>, QueueError>;

    /// Frees what is left of removed entries; returns the number of these entries.
    async fn collect(&self) -> Result<usize, QueueError>;

    /// Entries that were pushed at least `age` ago, waiting or claimed, at most `limit`, oldest first.
    async fn old(&self, age: Duration, limit: usize) -> Result<Vec<FoundEntry>, QueueError>;

    /// Removes old entries, waiting or claimed; returns their number.
    async fn remove_old(&self, old: &[FoundEntry]) -> Result<usize, QueueError>;

    /// The number of entries in a queue.
    async fn depth(&self, queue: &QueueName) -> Result<QueueDepth, QueueError>;

    /// How full all queues are. Takes the same time however many entries a shared queue has.
    async fn statistics(&self) -> Result<QueueStatistics, QueueError>;

    /// The queues that have or had entries.
    async fn queues(&self) -> Result<Vec<QueueName>, QueueError>;

    /// Moves a claimed entry to the dead letters. Returns whether the claim still held the entry.
    async fn bury(&self, claim: &Claim, reason: &str) -> Result<bool, QueueError>;

    /// Dead letters after the one with the id `after`, oldest first, at most `limit`.
    async fn dead_letters(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError>;

    /// Pushes the entry of a dead letter again. Returns whether there is one that can be read.
    async fn replay_dead_letter(&self, id: &str) -> Result<bool, QueueError>;

    /// Drops a dead letter. Returns whether there was one.
    async fn drop_dead_letter(&self, id: &str) -> Result<bool, QueueError>;

    /// Forgets consumers that have taken nothing for `age` and hold no entry; returns their number.
    async fn remove_stale_consumers(&self, age: Duration) -> Result<usize, QueueError>;

    /// A text that changes when the queue may have lost entries: all open jobs are to be pushed again.
    async fn epoch(&self) -> Result<String, QueueError>;

    /// The epoch when the queue was opened.
    fn first_epoch(&self) -> &str;

    /// Whether the entries are outside of this process: they outlive it, and other processes see them.
    fn is_shared(&self) -> bool;
}

/// What to do with an entry whose consumer is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Remove the entry: its job has ended, or was pushed again.
    Remove,
    /// Keep the entry: the state of its job is not known now. A later sweep finds the entry again.
    Keep,
    /// Let the entry wait again, at its former position.
    PutBack,
    /// Move the entry to the dead letters, for this reason.
    Bury(String),
}

/// Decides about the jobs of entries that the upkeep of a queue finds.
#[async_trait]
pub trait UpkeepHandler: Send + Sync {
    /// Ends a job whose deadline has passed. Returns whether the entry is settled; otherwise it is
    /// found again.
    async fn overdue(&self, entry: &QueueEntry) -> bool;

    /// The claims that this process is working on. They are not lost, however long the process
    /// could not renew them.
    fn active_claims(&self) -> Vec<Claim>;

    /// Ends the job of an entry whose consumer is gone, or lets it run again. Returns what to do
    /// with the entry.
    async fn lost(&self, claim: &Claim) -> Disposition;

    /// The same for an entry that was handed out as often as it may be without a lease. Unless some of these
    /// hand-outs led to a lease, its job must not be handed out again.
    async fn exhausted(&self, claim: &Claim) -> Disposition;

    /// Ends the job of an old entry if it may wait no longer. Returns whether the entry is obsolete.
    async fn prune(&self, entry: &QueueEntry) -> bool;

    /// The queue may have lost entries before this epoch: pushes all waiting jobs again. Returns whether all
    /// were pushed.
    async fn requeue(&self, epoch: &str) -> bool;

    /// Entries may have been deleted by other means while the epoch stayed the same: pushes the jobs again that
    /// have waited for `age` since they were pushed. Called once per `age`. A job whose entry exists keeps its
    /// position.
    async fn recheck(&self, age: Duration);

    /// The epoch since which the queue has all waiting jobs. `known` is what this process knows; a process
    /// that shares the queue with others reads what they have recorded, because it may have started after
    /// the loss. `None` if it cannot be read now.
    async fn complete_since(&self, known: &str) -> Option<String> {
        Some(known.to_owned())
    }
}
