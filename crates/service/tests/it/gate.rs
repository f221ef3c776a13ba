//! A real store that does what the test wants: takes no job before it is told to, or never, or cannot read one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::record::{
    Completion, JobRecord, JobSpec, JobSummary, OutboxMessage, SettledMessage,
};
use tidegate_core::store::{
    Inserted, JobFilter, JobFinish, JobQuery, Page, Reopened, SendOutcome, Store, StoreError,
};
use tidegate_core::{Account, JobId, Status};
use tidegate_store::{SqliteOptions, SqliteStore};
use tokio::sync::Semaphore;

/// The store and what is wrong with it.
pub(crate) struct Gate {
    _folder: tempfile::TempDir,
    store: SqliteStore,
    /// A job is written down when there is a permit.
    inserts: Semaphore,
    arrived: AtomicUsize,
    unwritable: AtomicBool,
    unreadable: AtomicUsize,
    corrupt: AtomicBool,
    /// The jobs whose end is rejected.
    rejected_ends: Mutex<Vec<JobId>>,
    rejections: AtomicUsize,
}

impl Gate {
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
            arrived: AtomicUsize::new(0),
            unwritable: AtomicBool::new(false),
            unreadable: AtomicUsize::new(0),
            corrupt: AtomicBool::new(false),
            rejected_ends: Mutex::default(),
            rejections: AtomicUsize::new(0),
        })
    }

    /// Has new jobs wait before they are written down.
    pub(crate) fn hold(&self) {
        self.inserts.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets those in that wait, and all others.
    pub(crate) fn let_in(&self) {
        self.inserts.add_permits(Semaphore::MAX_PERMITS);
    }

    /// From now on no job can be written down.
    pub(crate) fn break_writing(&self) {
        self.unwritable.store(true, Ordering::SeqCst);
    }

    /// The next questions for one job have no answer.
    pub(crate) fn break_reading(&self, times: usize) {
        self.unreadable.store(times, Ordering::SeqCst);
    }

    /// No job can be read any more, now or later.
    pub(crate) fn spoil(&self) {
        self.corrupt.store(true, Ordering::SeqCst);
    }

    /// Jobs can be read again.
    pub(crate) fn restore(&self) {
        self.corrupt.store(false, Ordering::SeqCst);
    }

    /// Rejects the end of this job from now on.
    pub(crate) fn reject_end(&self, id: JobId) {
        self.rejected_ends
            .lock()
            .expect("no test panics with it")
            .push(id);
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

    /// Waits until so many jobs were to be written down.
    pub(crate) async fn came(&self, count: usize) {
        while self.arrived.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    async fn pass(&self) -> Result<(), StoreError> {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let _passed = self
            .inserts
            .acquire()
            .await
            .expect("it is never closed for good");
        match self.unwritable.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the test wants it so".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Gate {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.pass().await?;
        self.store.insert(spec).await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.pass().await?;
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
                .expect("no test panics with it")
                .contains(&finish.id)
        };
        if is_rejected(&self.rejected_ends) {
            self.rejections.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Unavailable("the test wants it so".to_owned()));
        }
        self.store.finish(finish).await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        if self.corrupt.load(Ordering::SeqCst) {
            return Err(StoreError::Corrupt("the test wants it so".to_owned()));
        }
        let fails = self
            .unreadable
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| {
                times.checked_sub(1)
            })
            .is_ok();
        if fails {
            return Err(StoreError::Unavailable("the test wants it so".to_owned()));
        }
        self.store.get(account, id).await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.store.list(query).await
    }

    async fn recent(&self, wanted: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.store.recent(wanted).await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<(u64, JobRecord)>, StoreError> {
        self.store.open(after, limit).await
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.remove_data(over_before, limit).await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.forget(over_before, limit).await
    }

    async fn pending_messages(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, OutboxMessage)>, StoreError> {
        self.store.pending_messages(after, limit).await
    }

    async fn record_attempt(&self, id: &str, tried: SendOutcome) -> Result<(), StoreError> {
        self.store.record_attempt(id, tried).await
    }

    async fn settled_messages(
        &self,
        account: Option<Account>,
        job: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<SettledMessage>, StoreError> {
        self.store.settled_messages(account, job, limit).await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        at: Timestamp,
    ) -> Result<Reopened, StoreError> {
        self.store.reopen_message(id, account, at).await
    }
}
