//! The port of the queues in which jobs wait: it decides which job runs next. Callers do not depend
//! on the implementation (the memory of one process, Redis).
//!
//! The store is authoritative, a queue is only a hint. An entry only names a job: the job may
//! already have ended, and a lost entry is created again from the store. A consumer that takes an
//! entry holds it as long as it renews the claim, and acknowledges the entry when it is done. An
//! entry whose claim is no longer renewed is given to another consumer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Account, JobId};

/// A failed operation of a queue. A later attempt may succeed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the queue is unavailable: {0}")]
pub struct QueueError(pub String);

/// The name of a queue. Each version of a model has its own. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// The queue with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
}

/// An entry that a consumer has taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The queue that the entry was taken from.
    pub queue: QueueName,
    /// The entry that was taken.
    pub entry: QueueEntry,
    /// Opaque to callers. Each claim of an entry has a different ticket, so that operations with an
    /// older claim have no effect.
    pub ticket: String,
}

/// The name under which a process takes entries, different for each process. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Consumer(Arc<str>);

impl Consumer {
    /// The consumer with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of entries in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Entries that no consumer has taken.
    pub waiting: usize,
    /// Entries that a consumer has taken and not yet acknowledged.
    pub claimed: usize,
}

/// The queues in which jobs wait.
///
/// Accounts take turns, so that a thousand jobs of one account do not delay the jobs of another.
/// Jobs of one account with the same priority are handed out in the order in which they were
/// pushed. All methods may be called concurrently, and their futures may be dropped.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Adds a job behind the other jobs of its account. A job that already waits keeps its
    /// position; a job that is claimed waits again when its claim ends.
    async fn push(&self, queue: &QueueName, entry: QueueEntry) -> Result<(), QueueError>;

    /// Waits until more than `more_than` entries wait in a queue, and returns their number. Other
    /// consumers may take them before the caller does.
    async fn wait_for_more_than(
        &self,
        queue: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError>;

    /// Takes the next entry of a queue; waits up to `timeout` for one, then returns `None`.
    async fn take(
        &self,
        queue: &QueueName,
        consumer: &Consumer,
        timeout: Duration,
    ) -> Result<Option<Claim>, QueueError>;

    /// Renews claims whose jobs are still in progress. Claims that another consumer holds now are
    /// ignored.
    async fn renew(&self, claims: &[Claim]) -> Result<(), QueueError>;

    /// Removes a claimed entry, because its job has ended or must not run. Returns whether the
    /// claim still held the entry.
    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError>;

    /// Returns a claimed entry to its former position, because its job cannot run now.
    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError>;

    /// Removes the entry of a job that ended while it waited, so that no consumer gets it.
    async fn remove(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError>;

    /// The entries whose deadline has passed, waiting or claimed. Each is returned once; those that
    /// wait are removed.
    async fn overdue(&self, now: Timestamp) -> Result<Vec<(QueueName, QueueEntry)>, QueueError>;

    /// The time of the next deadline, if it is known.
    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError>;

    /// Claims that were not renewed for `idle`, at most `limit`. They are transferred to
    /// `consumer`.
    async fn lost(
        &self,
        consumer: &Consumer,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError>;

    /// Frees what is left of removed entries; returns the number of these entries.
    async fn collect(&self) -> Result<usize, QueueError>;

    /// Entries that were pushed before `before`, waiting or claimed, at most `limit`, oldest first.
    async fn old(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueName, QueueEntry)>, QueueError>;

    /// The number of entries in a queue.
    async fn depth(&self, queue: &QueueName) -> Result<QueueDepth, QueueError>;
}

/// What to do with an entry whose consumer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Remove the entry: its job has ended, or was pushed again.
    Remove,
    /// Keep the entry: the state of its job is not known now. A later sweep finds the entry again.
    Keep,
}

/// Decides about the jobs of entries that the upkeep of a queue finds.
#[async_trait]
pub trait UpkeepHandler: Send + Sync {
    /// Ends a job whose deadline has passed.
    async fn overdue(&self, entry: &QueueEntry);

    /// The claims that this process is working on. They are not lost, however long the process
    /// could not renew them.
    fn active_claims(&self) -> Vec<Claim>;

    /// Ends the job of an entry whose consumer is gone, or lets it run again. Returns what to do
    /// with the entry.
    async fn lost(&self, claim: &Claim) -> Disposition;

    /// Whether the entry is obsolete: its job has ended, or is unknown.
    async fn is_over(&self, entry: &QueueEntry) -> bool;
}
