//! The port of the record of jobs. What is behind it (SQLite, PostgreSQL) is no business of callers.
//!
//! Every call that changes something returns when the change will survive a crash of the machine, not
//! earlier. Calls may be made together: a store commits what waits in one go. A call that is dropped
//! before it returned may still come true. Moments are kept to the microsecond.

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::counters::Histogram;
use crate::record::{
    Completion, JobRecord, JobSpec, JobSummary, OutboxMessage, SettledMessage, Settlement,
};
use crate::{Account, JobId, JobKind, Status};

/// Why the store did not do it. Nothing of the call has happened, as far as can be known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no room left.
    #[error("the store has no room left: {0}")]
    Full(String),
    /// It cannot be reached or used now; later it may.
    #[error("the store cannot be used now: {0}")]
    Unavailable(String),
    /// What was given can never be kept, now or later: it is too large, or contradicts itself.
    #[error("the store cannot keep what it was given: {0}")]
    Invalid(String),
    /// What is kept cannot be read.
    #[error("the store holds something that cannot be read: {0}")]
    Corrupt(String),
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// It is kept from now on.
    New,
    /// One with this account and id is kept already.
    Known(Box<JobRecord>),
}

/// A page of a list, newest first. It may be shorter than asked for when its jobs are large; whether there
/// are more is said by `next` and `previous` only.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
    /// Where the page before begins, if there is one.
    pub previous: Option<Cursor>,
}

/// A place in a list, and whether to go to older or to newer ones from there. Its text means something to
/// the store only. It stays good when the jobs around it are forgotten. One that cannot be read (clients send
/// what they like) leads to an empty page without neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// Which jobs of an account are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct JobQuery {
    /// Whose.
    pub account: Account,
    /// Predictions or trainings.
    pub kind: JobKind,
    /// Made at this moment or later. Pages of one list must be asked for with the same bounds.
    pub created_after: Option<Timestamp>,
    /// Made before this moment.
    pub created_before: Option<Timestamp>,
    /// Where to begin.
    pub from: Option<Cursor>,
    /// How many at most. With 0 the page is empty and has no neighbours.
    pub limit: usize,
}

/// Which jobs are wanted, of all accounts. What is absent does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFilter {
    /// Whose.
    pub account: Option<Account>,
    /// With this id.
    pub id: Option<JobId>,
    /// For this model.
    pub model: Option<String>,
    /// In one of these states; none is any.
    pub statuses: Vec<Status>,
    /// How many at most.
    pub limit: usize,
}

impl JobFilter {
    /// Whether this one is among them.
    pub fn matches(&self, job: &JobSummary) -> bool {
        self.account
            .as_ref()
            .is_none_or(|account| *account == job.account)
            && self.id.as_ref().is_none_or(|id| *id == job.id)
            && self
                .model
                .as_ref()
                .is_none_or(|model| *model == job.target.model)
            && (self.statuses.is_empty() || self.statuses.contains(&job.status))
    }
}

/// What came of sending a letter once.
#[derive(Debug, Clone, PartialEq)]
pub enum SendOutcome {
    /// Nobody has taken it; it is tried again then.
    Retry(Timestamp),
    /// It is not tried any more.
    Settled(Settlement),
}

/// What became of the wish to have a letter sent again.
#[derive(Debug, Clone, PartialEq)]
pub enum Reopened {
    /// It is to be sent, from now on.
    Message(Box<OutboxMessage>),
    /// It is not settled: somebody sends it already.
    StillPending,
    /// Nobody knows it.
    Unknown,
}

/// What a store counts. It is read while the store goes on.
#[derive(Debug)]
pub struct StoreMetrics {
    /// How long commits took, the sync to the disk included.
    pub commit_seconds: Histogram,
    /// How many changes were committed together.
    pub commit_changes: Histogram,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        const SECONDS: &[f64] = &[
            0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
        ];
        const CHANGES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        Self {
            commit_seconds: Histogram::new(SECONDS),
            commit_changes: Histogram::new(CHANGES),
        }
    }
}

/// The end of a job, with the message about it that must go out.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFinish {
    /// Whose job.
    pub account: Account,
    /// Which.
    pub id: JobId,
    /// By which attempt. Another one has no say any more.
    pub attempt: u32,
    /// When the model began, if that was not noted before: then the end notes it too, and `attempt` is the one
    /// before.
    pub began_at: Option<Timestamp>,
    /// As what it ends; another than a terminal one is [`StoreError::Invalid`].
    pub status: Status,
    /// How.
    pub completion: Completion,
    /// Kept in the same moment, if somebody wants to be told.
    pub message: Option<OutboxMessage>,
}

/// What is written down about jobs.
#[async_trait]
pub trait Store: Send + Sync {
    /// Keeps a new job as `Queued`, unless its id is taken in its account.
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError>;

    /// Keeps a new job as `Queued`, in the place of one of its account with the same id that is over.
    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError>;

    /// Notes that a job is given to a model and is `Processing` from `at`; the number of this attempt (the
    /// first is 1), or `None` when it is over or unknown.
    async fn begin(
        &self,
        account: &Account,
        id: &JobId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError>;

    /// Notes that somebody was told that a job stops. `false` when it is over already, or unknown.
    async fn request_cancel(&self, account: &Account, id: &JobId) -> Result<bool, StoreError>;

    /// Ends a job. `false` when it was over already, is unknown, or another attempt has it: nothing is changed
    /// then, and the letter is not kept. A job that never began is ended by attempt 0.
    async fn finish(&self, finish: JobFinish) -> Result<bool, StoreError>;

    /// One job.
    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError>;

    /// Jobs of an account, newest first: by `created_at`, those of one moment by the order of their acceptance.
    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError>;

    /// Jobs of all accounts in a few words, the last accepted first.
    async fn recent(&self, wanted: JobFilter) -> Result<Vec<JobSummary>, StoreError>;

    /// Jobs that are not over, oldest first, after the one with this number; each with its number. For
    /// taking up work after a restart. Fewer than `limit` may come although there are more (large inputs); when
    /// none comes, there are none. Numbers grow in the order of acceptance and are never given twice.
    async fn open(&self, after: u64, limit: usize) -> Result<Vec<(u64, JobRecord)>, StoreError>;

    /// Removes input, output and logs of jobs that were over before this moment; says of how many.
    /// Their input is `{}` from then on, their output absent, their logs empty; settled letters about them are gone.
    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// Forgets jobs that were over before this moment; says how many. Their ids are free again; letters about
    /// them stay until they are settled, and are forgotten when they were settled before this moment.
    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// Letters that are still to be sent, those that are not due as well, oldest first, after the one with this
    /// number; each with its number. Fewer than `limit` may come although there are more (large bodies); when none
    /// comes, there are none. Numbers grow in the order in which letters were kept.
    async fn pending_messages(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, OutboxMessage)>, StoreError>;

    /// A letter was tried. One that is settled is kept for a while, so that it can be looked up and sent again.
    /// Unknown ones are let pass.
    async fn record_attempt(&self, id: &str, tried: SendOutcome) -> Result<(), StoreError>;

    /// Letters that are settled, the last one first; of this account and about this job, if these are given.
    async fn settled_messages(
        &self,
        account: Option<Account>,
        job: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<SettledMessage>, StoreError>;

    /// Has a settled letter sent again, from this moment on. One of another account than this one is unknown.
    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        at: Timestamp,
    ) -> Result<Reopened, StoreError>;
}

/// Small things that the store keeps as JSON under a name: deployments, descriptions of files, secrets.
#[async_trait]
pub trait Documents: Send + Sync {
    /// Keeps a document, in the place of the one with this name if there is one.
    async fn put(&self, shelf: &str, name: &str, json: Bytes) -> Result<(), StoreError>;

    /// Keeps a document unless there is one with this name; the one that is kept now.
    async fn put_new(&self, shelf: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError>;

    /// Keeps a document in the place of one that is still as it was read; says whether it was.
    async fn swap(
        &self,
        shelf: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError>;

    /// One document.
    async fn fetch(&self, shelf: &str, name: &str) -> Result<Option<Bytes>, StoreError>;

    /// Removes a document; says whether it was there.
    async fn remove(&self, shelf: &str, name: &str) -> Result<bool, StoreError>;

    /// The documents of a shelf whose names begin with `prefix`, by name (in the order of its bytes).
    async fn all(&self, shelf: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError>;
}
