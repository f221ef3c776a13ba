//! The port of the store of jobs. Callers do not depend on the implementation (SQLite, PostgreSQL).
//!
//! Every call that changes something returns when the change will survive a crash of the machine,
//! not earlier. Calls may be concurrent: a store commits waiting changes together. A call whose
//! future is dropped before it returns may still take effect. Timestamps are stored with
//! microsecond precision.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::counters::Histogram;
use crate::job_attempt::JobAttempt;
use crate::lease::{Fence, LeaseRequest, LeaseResult};
use crate::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, OutboxMessage, Reopened, SendOutcome, TakeRequest,
    TakenMessages,
};
use crate::record::{Completion, JobRecord, JobSpec, JobSummary, Target};
use crate::{Account, JobId, JobKind, Status, wire};

/// A failed operation of the store. The call had no effect, as far as the store can know.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no space left.
    #[error("the store has no space left: {0}")]
    Full(String),
    /// The store cannot be reached or used now. A later attempt may succeed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The arguments can never be stored, now or later: they are too large, or contradict each
    /// other.
    #[error("the store rejected the data: {0}")]
    Invalid(String),
    /// Stored data cannot be read.
    #[error("the store contains data that cannot be read: {0}")]
    Corrupt(String),
}

/// The result of an insert.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// The job was stored.
    New,
    /// The store already has this job with the same account and id.
    Known(Box<JobRecord>),
}

/// A page of a list, newest first. It may be shorter than requested when its jobs are large; only
/// `next` and `previous` say whether there are more.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
    /// Where the previous page begins, if there is one.
    pub previous: Option<Cursor>,
}

/// A position in a list, and the direction from there: to older or to newer jobs. Its text is
/// opaque to callers. It stays valid when the jobs around it are deleted. A cursor that cannot be
/// parsed (clients may send any text) leads to an empty page without `next` and `previous`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A query for the jobs of one account.
#[derive(Debug, Clone, PartialEq)]
pub struct JobQuery {
    /// The account that owns the jobs.
    pub account: Account,
    /// Predictions or trainings.
    pub kind: JobKind,
    /// Created at this time or later. All pages of one list must be requested with the same bounds.
    pub created_after: Option<Timestamp>,
    /// Created before this time.
    pub created_before: Option<Timestamp>,
    /// Where the page begins.
    pub from: Option<Cursor>,
    /// The maximum number of jobs. With 0 the page is empty and has no `next` and `previous`.
    pub limit: usize,
}

/// A filter for jobs of all accounts. An absent field matches every job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFilter {
    /// The account that owns the job.
    pub account: Option<Account>,
    /// The id of the job.
    pub id: Option<JobId>,
    /// What the id of the job begins with.
    pub id_prefix: Option<String>,
    /// The model that the job is for.
    pub model: Option<String>,
    /// The deployment that the job names, `owner/name`, with any release.
    pub deployment: Option<String>,
    /// The status is one of these; an empty list matches every status.
    pub statuses: Vec<Status>,
    /// Created at this time or earlier.
    pub created_until: Option<Timestamp>,
    /// The maximum number of jobs.
    pub limit: usize,
}

/// The parts of a job that filters and orders of lists use, borrowed from wherever the job is.
#[derive(Debug, Clone, Copy)]
pub struct JobHead<'a> {
    /// The account that owns the job.
    pub account: &'a Account,
    /// The id of the job.
    pub id: &'a JobId,
    /// What the job is for.
    pub target: &'a Target,
    /// The status of the job.
    pub status: Status,
    /// When the job was created.
    pub created_at: Timestamp,
}

impl<'a> From<&'a JobSummary> for JobHead<'a> {
    fn from(job: &'a JobSummary) -> Self {
        Self {
            account: &job.account,
            id: &job.id,
            target: &job.target,
            status: job.status,
            created_at: job.created_at,
        }
    }
}

impl JobFilter {
    /// Whether the filter matches a job.
    pub fn matches<'a>(&self, job: impl Into<JobHead<'a>>) -> bool {
        let job = job.into();
        self.account
            .as_ref()
            .is_none_or(|account| account == job.account)
            && self.id.as_ref().is_none_or(|id| id == job.id)
            && self
                .id_prefix
                .as_ref()
                .is_none_or(|prefix| job.id.as_str().starts_with(prefix.as_str()))
            && self
                .model
                .as_ref()
                .is_none_or(|model| *model == job.target.model)
            && self.deployment.as_ref().is_none_or(|deployment| {
                let named = job.target.deployment.as_ref();
                named.is_some_and(|named| named.deployment == *deployment)
            })
            && (self.statuses.is_empty() || self.statuses.contains(&job.status))
            && self
                .created_until
                .is_none_or(|until| job.created_at <= until)
    }

    /// Whether the filter matches open jobs only.
    pub fn is_open_only(&self) -> bool {
        let mut statuses = self.statuses.iter();
        !self.statuses.is_empty() && !statuses.any(|status| status.is_terminal())
    }
}

/// A job that has not ended. Its input is not read: many jobs may wait, with large inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenJob {
    /// The number of the job, in the order of acceptance.
    pub number: u64,
    /// The job, with the input `{}`.
    pub record: JobRecord,
    /// The size of the input.
    pub input_bytes: usize,
}

/// Metrics of a store. They can be read while the store is in use.
#[derive(Debug)]
pub struct StoreMetrics {
    /// The duration of commits, including the sync to disk.
    pub commit_seconds: Histogram,
    /// The number of changes per commit.
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

/// The result of recording that a cancel was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelRequestResult {
    /// The request is recorded.
    Recorded,
    /// The job has already ended.
    Ended,
    /// There is no such job.
    Unknown,
}

/// The result of ending a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishOutcome {
    /// The end is stored, with its message.
    Committed,
    /// An earlier call with the same nonce stored the end and its message.
    AlreadyCommitted,
    /// The job has ended otherwise, has a later lease, or is unknown. Nothing changed.
    ByAnother,
    /// A cancel is recorded, and this end is not `Canceled`. Nothing changed.
    CancelRequested,
}

/// The end of a job, with the final webhook message about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobFinish {
    /// The account that owns the job.
    #[serde(with = "wire::account")]
    pub account: Account,
    /// The id of the job.
    pub id: JobId,
    /// The lease of the attempt that ends the job. For a job that ends without a lease of its own:
    /// the number of its last attempt, and a nonce that identifies this end. If a request for a lease
    /// with that nonce was not answered, the end counts whether the lease was granted or not.
    pub fence: Fence,
    /// When the model began, if `fence` is a lease. The end commits a lease that survives only the
    /// process.
    pub began_at: Option<Timestamp>,
    /// The final status; a status that is not terminal is [`StoreError::Invalid`].
    pub status: Status,
    /// How the job ended.
    pub completion: Completion,
    /// The message for the webhook, if there is one; stored in the same transaction.
    pub message: Option<OutboxMessage>,
}

/// The part of the store that a running job needs: its lease and its end.
#[async_trait]
pub trait JobRecords: Send + Sync {
    /// Leases a job to one attempt, which makes it `Processing` since `began_at`.
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError>;

    /// Ends a job, unless a later lease exists. Can be repeated when its result was lost.
    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError>;
}

/// The store of jobs and of the messages about them.
#[async_trait]
pub trait Store: JobRecords {
    /// Stores a new job as `Queued`, unless its account already has a job with the same id.
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError>;

    /// Stores a new job as `Queued`. It replaces a job of its account with the same id that has
    /// ended.
    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError>;

    /// Stores a new job with its first lease, as `Processing` since `lease.began_at`, unless its
    /// account already has a job with the same id. The lease has attempt 1 and survives a crash of
    /// the machine.
    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError>;

    /// Records that a cancel was requested. From then on the job can only end as canceled.
    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError>;

    /// One job.
    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError>;

    /// The attempts of a job, oldest first; none if it has not been leased, or is unknown. At most
    /// [`MAX_EARLIER_ATTEMPTS`](crate::job_attempt::MAX_EARLIER_ATTEMPTS) are kept besides the last one.
    async fn attempts(&self, account: &Account, id: &JobId) -> Result<Vec<JobAttempt>, StoreError>;

    /// Jobs of an account, newest first: by `created_at`, and jobs with the same `created_at` by
    /// the order in which they were accepted.
    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError>;

    /// Summaries of jobs of all accounts, the last accepted first.
    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError>;

    /// Jobs that have not ended, oldest first, that follow the job with the number `after`. For
    /// resuming work after a restart. May return fewer than `limit` although there are more; an
    /// empty result means that there are none. A job whose data cannot be read is logged and left
    /// out. Numbers grow in the order in which jobs are accepted and are never reused.
    async fn open(&self, after: u64, limit: usize) -> Result<Vec<OpenJob>, StoreError>;

    /// Removes input, output and logs of jobs that ended before `over_before`, at most `limit`;
    /// returns the number of jobs. From then on their input is `{}`, their output absent and their
    /// logs empty. Settled messages about them are deleted.
    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// Deletes jobs that ended before `over_before`, at most `limit`; returns their number. Their
    /// ids can be used again. Messages about them stay until they are settled, and are deleted when
    /// they were settled before `over_before`.
    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError>;

    /// Claims messages that are due, those of each receiver in the order in which they are due.
    /// Receivers get equal parts of the limits, so that none delays the messages to others. A
    /// message under a claim of this or another holder is not taken before that claim ends.
    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError>;

    /// Records the result of one attempt, and ends the claim. A settled message is kept for a while,
    /// so that it can be inspected and sent again. Ignored if the message is unknown or settled, or
    /// if `holder` has lost its claim; but a delivery always counts.
    async fn record_attempt(
        &self,
        id: &str,
        holder: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError>;

    /// Ends the claim of `holder` without an attempt: the message is due at once.
    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError>;

    /// Messages without their bodies: first the pending ones, the last created first, then the
    /// settled ones, the last settled first.
    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError>;

    /// The number of messages that are not settled.
    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError>;

    /// Makes a message due at once. A settled message becomes pending again, with a retry window of
    /// this length from now on. With `account`, a message of another account is unknown.
    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        window: Duration,
    ) -> Result<Reopened, StoreError>;
}

/// Small JSON documents, by namespace and name: deployments, metadata of files, secrets.
#[async_trait]
pub trait Documents: Send + Sync {
    /// Stores a document. It replaces the document with this name, if there is one.
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError>;

    /// Stores a document unless there is one with this name. Returns the document that is stored
    /// now.
    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError>;

    /// Replaces a document if it still equals `expected`; returns whether it did.
    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        expected: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError>;

    /// One document.
    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError>;

    /// Removes a document; returns whether it existed.
    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError>;

    /// The documents of a namespace whose names begin with `prefix`, ordered by the bytes of their
    /// names.
    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError>;
}
