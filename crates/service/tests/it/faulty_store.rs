//! A real store with faults that a test can set: inserts that wait or fail, and reads that fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, Reopened, SendOutcome, TakeRequest, TakenMessages,
};
use tidegate_core::record::{Completion, JobRecord, JobSpec, JobSummary};
use tidegate_core::store::{Inserted, JobFilter, JobFinish, JobQuery, Page, Store, StoreError};
use tidegate_core::{Account, JobId, Status};
use tidegate_store::{SqliteOptions, SqliteStore};
use tokio::sync::Semaphore;

/// A SQLite store and its current faults.
pub(crate) struct FaultyStore {
    _folder: tempfile::TempDir,
    store: SqliteStore,
    /// An insert waits for a permit.
    inserts: Semaphore,
    started_inserts: AtomicUsize,
    /// A read of open jobs takes a permit.
    open_reads: Semaphore,
    unwritable: AtomicBool,
    unreadable: AtomicUsize,
    corrupt: AtomicBool,
    /// The jobs whose end is rejected.
    rejected_ends: Mutex<Vec<JobId>>,
    rejections: AtomicUsize,
    unrecorded_attempts: AtomicUsize,
}

impl FaultyStore {
    /// A store without faults.
    pub(crate) fn new() -> Arc<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store =
            SqliteStore::open(folder.path(), &SqliteOptions::default()).expect("a new store");
        let inserts = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            _folder: folder,
            store,
            inserts,
            started_inserts: AtomicUsize::new(0),
            open_reads: Semaphore::new(Semaphore::MAX_PERMITS),
            unwritable: AtomicBool::new(false),
            unreadable: AtomicUsize::new(0),
            corrupt: AtomicBool::new(false),
            rejected_ends: Mutex::default(),
            rejections: AtomicUsize::new(0),
            unrecorded_attempts: AtomicUsize::new(0),
        })
    }

    /// Makes inserts wait.
    pub(crate) fn hold_inserts(&self) {
        self.inserts.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets waiting and future inserts continue.
    pub(crate) fn release_inserts(&self) {
        self.inserts.add_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets this many reads of open jobs continue; others wait.
    pub(crate) fn allow_reads_of_open_jobs(&self, count: usize) {
        self.open_reads.forget_permits(Semaphore::MAX_PERMITS);
        self.open_reads.add_permits(count);
    }

    /// Makes every insert fail.
    pub(crate) fn fail_inserts(&self) {
        self.unwritable.store(true, Ordering::SeqCst);
    }

    /// Makes the next reads of a job fail temporarily.
    pub(crate) fn fail_reads(&self, times: usize) {
        self.unreadable.store(times, Ordering::SeqCst);
    }

    /// Makes every read of a job fail as corrupt.
    pub(crate) fn corrupt_reads(&self) {
        self.corrupt.store(true, Ordering::SeqCst);
    }

    /// Ends [`Self::corrupt_reads`].
    pub(crate) fn restore_reads(&self) {
        self.corrupt.store(false, Ordering::SeqCst);
    }

    /// Rejects the end of this job from now on.
    pub(crate) fn reject_end(&self, id: JobId) {
        self.rejected_ends
            .lock()
            .expect("the lock is not poisoned")
            .push(id);
    }

    /// Makes the next records of attempts to send a webhook fail temporarily.
    pub(crate) fn fail_attempt_records(&self, times: usize) {
        self.unrecorded_attempts.store(times, Ordering::SeqCst);
    }

    /// Waits until the end of a job was rejected.
    pub(crate) async fn end_rejected(&self) {
        while self.rejections.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// The record of a job, whatever faults are set.
    pub(crate) async fn record(&self, id: &JobId) -> JobRecord {
        let record = self.store.get(&Account::ANONYMOUS, id).await;
        record
            .expect("the store works")
            .expect("the job is recorded")
    }

    /// Ends a job as another server with the same store would.
    pub(crate) async fn cancel_elsewhere(&self, id: &JobId) {
        let finish = JobFinish {
            account: Account::ANONYMOUS,
            id: id.clone(),
            attempt: 0,
            began_at: None,
            status: Status::Canceled,
            completion: Completion {
                completed_at: Timestamp::now(),
                ..Completion::empty()
            },
            message: None,
        };
        assert!(self.store.finish(finish).await.expect("the store works"));
    }

    /// Waits until this many inserts were started.
    pub(crate) async fn wait_for_inserts(&self, count: usize) {
        while self.started_inserts.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    async fn before_insert(&self) -> Result<(), StoreError> {
        self.started_inserts.fetch_add(1, Ordering::SeqCst);
        let _permit = self
            .inserts
            .acquire()
            .await
            .expect("the semaphore is never closed");
        match self.unwritable.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("fault set by the test".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.before_insert().await?;
        self.store.insert(spec).await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.before_insert().await?;
        self.store.replace(spec).await
    }

    async fn begin(
        &self,
        account: &Account,
        id: &JobId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        self.store.begin(account, id, at).await
    }

    async fn request_cancel(&self, account: &Account, id: &JobId) -> Result<bool, StoreError> {
        self.store.request_cancel(account, id).await
    }

    async fn finish(&self, finish: JobFinish) -> Result<bool, StoreError> {
        let is_rejected = |ends: &Mutex<Vec<JobId>>| {
            ends.lock()
                .expect("the lock is not poisoned")
                .contains(&finish.id)
        };
        if is_rejected(&self.rejected_ends) {
            self.rejections.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Unavailable("fault set by the test".to_owned()));
        }
        self.store.finish(finish).await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        if self.corrupt.load(Ordering::SeqCst) {
            return Err(StoreError::Corrupt("fault set by the test".to_owned()));
        }
        let fails = self
            .unreadable
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| {
                times.checked_sub(1)
            })
            .is_ok();
        if fails {
            return Err(StoreError::Unavailable("fault set by the test".to_owned()));
        }
        self.store.get(account, id).await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.store.list(query).await
    }

    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.store.recent(filter).await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<(u64, JobRecord)>, StoreError> {
        let permit = self.open_reads.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        self.store.open(after, limit).await
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.remove_data(over_before, limit).await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.forget(over_before, limit).await
    }

    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError> {
        self.store.take_messages(request).await
    }

    async fn record_attempt(
        &self,
        id: &str,
        holder: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError> {
        let fails = self
            .unrecorded_attempts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| {
                times.checked_sub(1)
            })
            .is_ok();
        if fails {
            return Err(StoreError::Unavailable("fault set by the test".to_owned()));
        }
        self.store.record_attempt(id, holder, outcome).await
    }

    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        self.store.release_message(id, holder).await
    }

    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError> {
        self.store.messages(filter).await
    }

    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError> {
        self.store.outbox_counts().await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        window: Duration,
    ) -> Result<Reopened, StoreError> {
        self.store.reopen_message(id, account, window).await
    }
}
