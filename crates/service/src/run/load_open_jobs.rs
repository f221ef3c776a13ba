//! Loads the open jobs that a previous server process left in the store, in the order in which they were
//! accepted. The first ones are loaded before the server accepts requests, the others in the background.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::policy::QueueingPolicy;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{OpenJob, Store, StoreError};
use tidegate_core::{chain, planted};

use super::resume::Resumed;
use crate::job_service::JobService;
use crate::snapshot::TerminalState;
use crate::waiting::entries::entry_of_record;
use crate::waiting::loading::ServiceLookup;
use crate::waiting::stored_job::StoredJob;

/// How many records are read at once.
const BATCH: usize = 500;
/// How many jobs are loaded before the server accepts requests.
const LOADED_FIRST: usize = 1000;
/// The pause after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a job failed that was running when the server died.
pub(crate) const LOST: &str =
    "the server was stopped while the model ran the job, and does not run it again (--on-lost)";

/// When a recorded job joins its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinQueue {
    /// Now: the loader has read all older jobs.
    Now,
    /// After all older jobs, which may still have to be loaded.
    InOrder,
}

/// Reads the open jobs of the store.
struct OpenJobLoader {
    /// The service that looks up the jobs of all models.
    lookup: JobService,
    store: Arc<dyn Store>,
    service_of: ServiceLookup,
    /// The number of the last job that was read.
    after: u64,
}

impl JobService {
    /// Loads the first open jobs, and starts to load the others in the background.
    pub(super) async fn load_open_jobs(
        &self,
        store: Arc<dyn Store>,
        service_of: ServiceLookup,
    ) -> Result<Resumed, StoreError> {
        self.shared().loading.begin(Arc::clone(&service_of));
        let mut loader = OpenJobLoader {
            lookup: self.clone(),
            store,
            service_of,
            after: 0,
        };
        let mut resumed = Resumed::default();
        while resumed.queued + resumed.failed < LOADED_FIRST {
            if !loader.load_batch(&mut resumed).await? {
                loader.finish().await;
                return Ok(resumed);
            }
        }
        resumed.is_loading = true;
        self.model.tasks.spawn(loader.load_rest());
        Ok(resumed)
    }

    /// Waits until the jobs of the previous server process are loaded, or until the server shuts down.
    pub async fn loaded(&self) {
        tokio::select! {
            () = self.shared().loading.finished() => {}
            () = self.shared().closing.cancelled() => {}
        }
    }

    /// Calls `then` when the jobs of the previous server process are loaded, or when the server shuts down.
    pub fn when_loaded(&self, then: impl FnOnce() + Send + 'static) {
        let service = self.clone();
        self.model.tasks.spawn(async move {
            service.loaded().await;
            then();
        });
    }

    /// Adds a recorded job to the waiting jobs, unless it is there already or runs.
    pub(crate) async fn enqueue_recorded(&self, recorded: &RecordedJob, join: JoinQueue) {
        let record = &recorded.record;
        let (shared, spec) = (self.shared(), &record.spec);
        let key = (spec.account.clone(), spec.id.clone());
        let entry = entry_of_record(record);
        let insert = || {
            shared.registry.get(&key.0, &key.1).is_none()
                && shared.waiting_jobs.insert_stored(
                    self,
                    key.clone(),
                    StoredJob::of_record(record).with_input_bytes(recorded.input_bytes),
                    None,
                )
        };
        let queued = match join {
            JoinQueue::Now => shared.loading.add_loaded(self, entry, insert),
            JoinQueue::InOrder => {
                let entry = shared.loading.add(self, entry, insert);
                entry.map(|entry| (self.clone(), entry))
            }
        };
        if let Some((service, entry)) = queued {
            service.push_entry(entry).await;
        }
    }

    /// Resumes an open job of the previous server process, or ends it. Returns which. A job that waits or
    /// runs here already goes on: this process has accepted or resumed it since it started.
    pub(crate) async fn resume_record(
        &self,
        store: &Arc<dyn Store>,
        service_of: &ServiceLookup,
        recorded: RecordedJob,
        join: JoinQueue,
    ) -> Result<ResumedAs, StoreError> {
        let record = &recorded.record;
        let (shared, spec) = (self.shared(), &record.spec);
        let key = (spec.account.clone(), spec.id.clone());
        if shared.waiting_jobs.is_open_here(&key, &shared.registry) {
            let unqueued = match join {
                JoinQueue::Now => shared.loading.take_unqueued(&key),
                JoinQueue::InOrder => None,
            };
            if let Some((service, entry)) = unqueued {
                service.push_entry(entry).await;
            }
            return Ok(ResumedAs::Open);
        }
        let service = service_of(&spec.target);
        let terminal = match &service {
            _ if record.cancel_requested => TerminalState::Canceled,
            Some(service) if service.may_run_again(record) => {
                service.run_again(store, recorded, join).await;
                return Ok(ResumedAs::Open);
            }
            Some(_) => TerminalState::Failed(LOST.to_owned()),
            None => TerminalState::Failed(format!(
                "the server was stopped, and the model `{}` is no longer served",
                record.spec.target.model
            )),
        };
        let service = service.as_ref().unwrap_or(self);
        let record = recorded.record;
        service.end_recorded(store, record, terminal).await?;
        Ok(ResumedAs::Ended)
    }
}

/// An open job of the store. The input of a job that only has to wait need not be read.
pub(crate) struct RecordedJob {
    pub(crate) record: JobRecord,
    pub(crate) input_bytes: usize,
}

impl From<JobRecord> for RecordedJob {
    /// A record with its input.
    fn from(record: JobRecord) -> Self {
        Self {
            input_bytes: record.spec.input.len(),
            record,
        }
    }
}

/// Whether an open job was resumed or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumedAs {
    /// It waits or runs here.
    Open,
    Ended,
}

impl OpenJobLoader {
    /// Loads the next jobs; returns `false` when there are none.
    async fn load_batch(&mut self, resumed: &mut Resumed) -> Result<bool, StoreError> {
        let batch = self.store.open(self.after, BATCH).await?;
        let Some(last) = batch.last().map(|job| job.number) else {
            return Ok(false);
        };
        planted!(MixedQueue, let batch = batch.into_iter().rev().collect::<Vec<_>>());
        for job in batch {
            let number = job.number;
            let (store, service_of) = (&self.store, &self.service_of);
            if let Some(job) = self.read_input_if_needed(job).await? {
                let resumed_as = self
                    .lookup
                    .resume_record(store, service_of, job, JoinQueue::Now)
                    .await?;
                match resumed_as {
                    ResumedAs::Open => resumed.queued += 1,
                    ResumedAs::Ended => resumed.failed += 1,
                }
            }
            // A batch that fails is not loaded twice: its first jobs may have ended since.
            self.after = self.after.max(number);
        }
        self.after = last.max(self.after);
        Ok(true)
    }

    /// Reads the input of a job that does more than wait in a queue: it waits at the model, or ends. `None`
    /// when it has ended meanwhile.
    async fn read_input_if_needed(&self, job: OpenJob) -> Result<Option<RecordedJob>, StoreError> {
        let OpenJob {
            record,
            input_bytes,
            ..
        } = job;
        let only_waits = record.spec.policies.queueing == QueueingPolicy::Queue
            && !record.cancel_requested
            && (self.service_of)(&record.spec.target)
                .is_some_and(|service| service.may_run_again(&record));
        if only_waits {
            return Ok(Some(RecordedJob {
                record,
                input_bytes,
            }));
        }
        let spec = &record.spec;
        let record = self.store.get(&spec.account, &spec.id).await?;
        let open = record.filter(|record| !record.status.is_terminal());
        Ok(open.map(RecordedJob::from))
    }

    /// Loads the jobs that are left. A store that cannot be read is tried again.
    async fn load_rest(mut self) {
        let mut resumed = Resumed::default();
        let closing = self.lookup.shared().closing.clone();
        while !closing.is_cancelled() {
            match self.load_batch(&mut resumed).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {
                    self.finish().await;
                    let Resumed { queued, failed, .. } = resumed;
                    tracing::info!(queued, failed, "loaded the other jobs of the previous run");
                    return;
                }
                Err(error) => {
                    tracing::error!(error = %chain(&error), "failed to load jobs of the previous run, retrying");
                    closing
                        .run_until_cancelled(tokio::time::sleep(RETRY_AFTER))
                        .await;
                }
            }
        }
    }

    /// Queues the jobs that were accepted since the last batch was read.
    async fn finish(&self) {
        loop {
            let left = self.lookup.shared().loading.finish();
            if left.is_empty() {
                return;
            }
            for (service, entry) in left {
                service.push_entry(entry).await;
            }
        }
    }
}
