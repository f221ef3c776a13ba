//! A real store with faults that a test can set: calls that wait or fail, and calls that take effect and
//! report an error.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::lease::{Fence, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, Reopened, SendOutcome, TakeRequest, TakenMessages,
};
use tidegate_core::record::{Completion, JobRecord, JobSpec, JobSummary};
use tidegate_core::store::{
    CancelRequestResult, FinishOutcome, Inserted, JobFilter, JobFinish, JobQuery, JobRecords,
    OpenJob, Page, Store, StoreError,
};
use tidegate_core::{Account, JobId, Status};
use tidegate_store::{SqliteOptions, SqliteStore};
use tokio::sync::Semaphore;

/// A SQLite store and its current faults.
pub(crate) struct FaultyStore {
    folder: tempfile::TempDir,
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
    /// An end waits for a permit.
    ends: Semaphore,
    started_ends: AtomicUsize,
    /// How many of the next leases and ends are committed and reported as failed.
    lost_lease_answers: AtomicUsize,
    lost_end_answers: AtomicUsize,
    /// The result of a lease waits for a permit.
    lease_results: Semaphore,
    held_lease_results: AtomicUsize,
    /// How many leases and cancel requests fail.
    failing_leases: AtomicUsize,
    failed_leases: AtomicUsize,
    failing_cancels: AtomicUsize,
    /// How late the reply to the next call is that takes messages.
    take_delay: Mutex<Duration>,
    takes: AtomicUsize,
}

impl FaultyStore {
    /// A store without faults.
    pub(crate) fn new() -> Arc<Self> {
        Self::open(tempfile::tempdir().expect("a temporary folder"))
    }

    /// A store with the files that a kill of this process would leave now.
    pub(crate) fn copy_after_a_crash(&self) -> Arc<Self> {
        let copy = tempfile::tempdir().expect("a temporary folder");
        for entry in std::fs::read_dir(self.folder.path()).expect("the data folder") {
            let file = entry.expect("a file").path();
            let name = file.file_name().expect("a name");
            std::fs::copy(&file, copy.path().join(name)).expect("a copy");
        }
        Self::open(copy)
    }

    fn open(folder: tempfile::TempDir) -> Arc<Self> {
        let store =
            SqliteStore::open(folder.path(), &SqliteOptions::default()).expect("a new store");
        let inserts = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            folder,
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
            ends: Semaphore::new(Semaphore::MAX_PERMITS),
            started_ends: AtomicUsize::new(0),
            lost_lease_answers: AtomicUsize::new(0),
            lost_end_answers: AtomicUsize::new(0),
            lease_results: Semaphore::new(Semaphore::MAX_PERMITS),
            held_lease_results: AtomicUsize::new(0),
            failing_leases: AtomicUsize::new(0),
            failed_leases: AtomicUsize::new(0),
            failing_cancels: AtomicUsize::new(0),
            take_delay: Mutex::default(),
            takes: AtomicUsize::new(0),
        })
    }

    /// Makes the reply to the next call late that takes messages.
    pub(crate) fn delay_take(&self, delay: Duration) {
        *self.take_delay.lock().expect("no test panicked") = delay;
    }

    /// How many calls have taken messages.
    pub(crate) fn takes(&self) -> usize {
        self.takes.load(Ordering::SeqCst)
    }

    /// Makes ends wait.
    pub(crate) fn hold_ends(&self) {
        self.ends.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets waiting and future ends continue.
    pub(crate) fn release_ends(&self) {
        self.ends.add_permits(Semaphore::MAX_PERMITS);
    }

    /// Waits until the end of a job was started.
    pub(crate) async fn end_started(&self) {
        while self.started_ends.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Commits the next leases and reports an error for them.
    pub(crate) fn lose_lease_answers(&self, times: usize) {
        self.lost_lease_answers.store(times, Ordering::SeqCst);
    }

    /// Commits the next ends and reports an error for them.
    pub(crate) fn lose_end_answers(&self, times: usize) {
        self.lost_end_answers.store(times, Ordering::SeqCst);
    }

    /// Grants leases without returning the result.
    pub(crate) fn hold_lease_results(&self) {
        self.lease_results.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Returns the results of leases that are held, and of future ones.
    pub(crate) fn release_lease_results(&self) {
        self.lease_results.add_permits(Semaphore::MAX_PERMITS);
    }

    /// Waits until a lease was granted whose result is held.
    pub(crate) async fn lease_result_held(&self) {
        while self.held_lease_results.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Makes every lease fail until [`Self::restore_leases`].
    pub(crate) fn fail_leases(&self) {
        self.failing_leases.store(usize::MAX, Ordering::SeqCst);
    }

    /// Ends [`Self::fail_leases`].
    pub(crate) fn restore_leases(&self) {
        self.failing_leases.store(0, Ordering::SeqCst);
    }

    /// Waits until a lease has failed.
    pub(crate) async fn lease_failed(&self) {
        while self.failed_leases.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Makes the next cancel requests fail.
    pub(crate) fn fail_cancels(&self, times: usize) {
        self.failing_cancels.store(times, Ordering::SeqCst);
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
            fence: Fence {
                attempt: 0,
                nonce: Nonce(1),
            },
            began_at: None,
            status: Status::Canceled,
            completion: Completion {
                completed_at: Timestamp::now(),
                ..Completion::empty()
            },
            message: None,
        };
        assert_eq!(
            self.store.finish(finish).await.expect("the store works"),
            FinishOutcome::Committed
        );
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
            true => Err(fault()),
            false => Ok(()),
        }
    }
}

fn fault() -> StoreError {
    StoreError::Unavailable("fault set by the test".to_owned())
}

/// Whether a fault applies to this call; counts it.
fn take_one(times: &AtomicUsize) -> bool {
    times
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| {
            times.checked_sub(1)
        })
        .is_ok()
}

#[async_trait]
impl JobRecords for FaultyStore {
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        if take_one(&self.failing_leases) {
            self.failed_leases.fetch_add(1, Ordering::SeqCst);
            return Err(fault());
        }
        let result = self.store.lease(request).await;
        self.held_lease_results.fetch_add(1, Ordering::SeqCst);
        let _permit = self
            .lease_results
            .acquire()
            .await
            .expect("the semaphore is never closed");
        match take_one(&self.lost_lease_answers) {
            true => Err(fault()),
            false => result,
        }
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        let is_rejected = |ends: &Mutex<Vec<JobId>>| {
            ends.lock()
                .expect("the lock is not poisoned")
                .contains(&finish.id)
        };
        if is_rejected(&self.rejected_ends) {
            self.rejections.fetch_add(1, Ordering::SeqCst);
            return Err(fault());
        }
        self.started_ends.fetch_add(1, Ordering::SeqCst);
        let _permit = self
            .ends
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let outcome = self.store.finish(finish).await;
        match take_one(&self.lost_end_answers) {
            true => Err(fault()),
            false => outcome,
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

    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError> {
        self.before_insert().await?;
        self.store.insert_leased(spec, lease).await
    }

    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError> {
        match take_one(&self.failing_cancels) {
            true => Err(fault()),
            false => self.store.request_cancel(account, id).await,
        }
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        if self.corrupt.load(Ordering::SeqCst) {
            return Err(StoreError::Corrupt("fault set by the test".to_owned()));
        }
        if take_one(&self.unreadable) {
            return Err(fault());
        }
        self.store.get(account, id).await
    }

    async fn attempts(&self, account: &Account, id: &JobId) -> Result<Vec<JobAttempt>, StoreError> {
        self.store.attempts(account, id).await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.store.list(query).await
    }

    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.store.recent(filter).await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<OpenJob>, StoreError> {
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
        let taken = self.store.take_messages(request).await;
        if taken.as_ref().is_ok_and(|taken| !taken.messages.is_empty()) {
            self.takes.fetch_add(1, Ordering::SeqCst);
            let delay = std::mem::take(&mut *self.take_delay.lock().expect("no test panicked"));
            tokio::time::sleep(delay).await;
        }
        taken
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
