//! The port of the lines that jobs wait in: who is worked on next. What is behind it (the memory of one
//! process, Redis) is no business of callers.
//!
//! A queue is a hint and the store is the truth. An entry only names a job; what it names may be over, and an
//! entry that was lost is made again from the store. Whoever takes an entry has it for as long as it is renewed,
//! and says when it is done with it. One that is not renewed any more is given to somebody else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Account, JobId};

/// Why a queue did not do it. It may later.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the queue cannot be used now: {0}")]
pub struct QueueError(pub String);

/// The name of a line: one for each version of a model. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// The line with this name.
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

/// Who is before whom among the jobs of one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// First come, first served.
    #[default]
    Normal,
    /// After all others of its account.
    Low,
}

impl Priority {
    /// The note about a job that lets others go first, if it says `true`.
    pub const CONTEXT_KEY: &str = "yields";

    /// What the notes about a job say.
    pub fn from_context(context: &BTreeMap<String, String>) -> Self {
        match context.get(Self::CONTEXT_KEY).map(String::as_str) {
            Some("true") => Self::Low,
            Some(_) | None => Self::Normal,
        }
    }
}

/// A job in a line.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueEntry {
    /// Whose job.
    pub account: Account,
    /// Which.
    pub id: JobId,
    /// Before whom.
    pub priority: Priority,
    /// After this moment nobody wants it any more.
    pub deadline: Option<Timestamp>,
}

/// An entry in somebody's hands.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In which line it stood.
    pub queue: QueueName,
    /// Which job.
    pub entry: QueueEntry,
    /// Means something to the queue only. Another one after each taking, so that who had it before has no say.
    pub ticket: String,
}

/// Who takes entries: one name for each process. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Consumer(Arc<str>);

impl Consumer {
    /// Somebody with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How many are in a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// In nobody's hands.
    pub waiting: usize,
    /// In somebody's.
    pub claimed: usize,
}

/// The lines that jobs wait in.
///
/// Accounts take turns, so that a thousand jobs of one do not delay those of another; the jobs of one account and
/// rank are handed out in the order in which they came. All calls may be made together, and dropped.
#[async_trait]
pub trait Queue: Send + Sync {
    /// Puts a job behind the others of its account. One that waits already stays where it is; one that is in hand
    /// waits again when that is done.
    async fn push(&self, queue: &QueueName, entry: QueueEntry) -> Result<(), QueueError>;

    /// Waits until more than so many stand in a line; says how many. They may be gone when they are asked for.
    async fn wait_for_more_than(
        &self,
        queue: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError>;

    /// The next of a line; waits for one as long as `patience` lasts.
    async fn take(
        &self,
        queue: &QueueName,
        consumer: &Consumer,
        patience: Duration,
    ) -> Result<Option<Claim>, QueueError>;

    /// These are still worked on. Those that somebody else has by now are let pass.
    async fn renew(&self, claims: &[Claim]) -> Result<(), QueueError>;

    /// A job is over, or is not to be done: its entry goes. Says whether it was still this claim's.
    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError>;

    /// A job cannot be worked on now: its entry goes back to where it stood.
    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError>;

    /// A job is over before its turn: it is not handed out any more.
    async fn remove(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError>;

    /// The entries whose deadline has come, waiting or taken. Each is told once; those that wait are struck.
    async fn overdue(&self, now: Timestamp) -> Result<Vec<(QueueName, QueueEntry)>, QueueError>;

    /// When the next deadline comes, if that is known.
    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError>;

    /// Entries that were taken and not renewed for `idle`, at most so many; `consumer` has them from now on.
    async fn lost(
        &self,
        consumer: &Consumer,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError>;

    /// Removes what is left of entries that were struck; says of how many.
    async fn collect(&self) -> Result<usize, QueueError>;

    /// Entries that have been there since before this moment, waiting or taken, at most so many, oldest first.
    async fn old(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueName, QueueEntry)>, QueueError>;

    /// How many are in a line.
    async fn depth(&self, queue: &QueueName) -> Result<QueueDepth, QueueError>;
}

/// What becomes of an entry whose holder is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Its job is over, or stands in a line again: this entry goes.
    Remove,
    /// That cannot be said now: it is found again later.
    Keep,
}

/// Who knows what became of the jobs that entries name.
#[async_trait]
pub trait UpkeepHandler: Send + Sync {
    /// The deadline of a job has come: ends it.
    async fn overdue(&self, entry: &QueueEntry);

    /// What this process works on itself, and so is not lost, however long nobody could say so.
    fn active_claims(&self) -> Vec<Claim>;

    /// Whoever had this entry is gone: ends the job, or has it done again. Says what becomes of the entry.
    async fn lost(&self, claim: &Claim) -> Disposition;

    /// Whether nobody needs the entry any more: its job is over, or nobody knows it.
    async fn is_over(&self, entry: &QueueEntry) -> bool;
}
