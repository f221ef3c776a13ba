//! Reads a waiting job from the store: its input for clients that look at the job, and all of it when the
//! job starts or ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::planted;
use tidegate_core::port::Admitted;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Store, StoreError};

use super::claims::ClaimGuard;
use super::stored_job::StoredJob;
use super::waiting_jobs::{JobKey, ResidentJob, TakenJob};
use crate::job::{Job, NewJob};
use crate::job_service::JobService;
use crate::run::finish::{EndedJob, TerminalWebhook};
use crate::run::recorder::{Caller, OnStoreError};
use crate::run::tracker::Tracker;
use crate::snapshot::TerminalState;

/// The pause after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Why an input was not reloaded.
enum ReloadError {
    /// The server shuts down before the store could be read: the next process runs the job.
    Closing,
    /// The job has ended, as its record says.
    Ended(Box<JobRecord>),
    /// The input can never be read.
    Unreadable(String),
}

impl JobService {
    /// The job with its input, from the store if it is not in memory.
    pub(crate) async fn with_input(&self, job: Arc<Job>) -> Arc<Job> {
        let Some(store) = self.store().filter(|_| job.input().is_none()) else {
            return job;
        };
        match store.get(job.account(), job.id()).await {
            Ok(Some(record)) => Arc::new(job.with_input(record.spec.input)),
            Ok(None) => job,
            Err(error) => {
                tracing::error!(job = %job.id(), error = %chain(&error), "failed to read input of waiting job");
                job
            }
        }
    }

    /// Reads the record of a job that was taken.
    async fn read_taken(
        &self,
        (account, id): &JobKey,
        store: &dyn Store,
    ) -> Result<JobRecord, ReloadError> {
        loop {
            match store.get(account, id).await {
                Ok(Some(record)) if record.status.is_terminal() => {
                    return Err(ReloadError::Ended(Box::new(record)));
                }
                Ok(Some(record)) => {
                    planted!(ForeignInput, let record = JobRecord {
                        spec: tidegate_core::record::JobSpec {
                            input: tidegate_core::planted::previous(record.spec.input.clone()),
                            ..record.spec
                        },
                        ..record
                    });
                    return Ok(record);
                }
                Ok(None) => {
                    let reason = "its record is missing from the store";
                    return Err(ReloadError::Unreadable(reason.to_owned()));
                }
                Err(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_))) => {
                    return Err(ReloadError::Unreadable(chain(&error).to_string()));
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Full(_))) => {
                    tracing::error!(job = %id, error = %chain(&error), "failed to read waiting job, retrying");
                }
            }
            if self.shared().closing.is_cancelled() {
                return Err(ReloadError::Closing);
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Runs a job that is in the store only.
    async fn run_stored(
        &self,
        key: JobKey,
        claim: Option<ClaimGuard>,
        admitted: Admitted,
        began_at: Option<Timestamp>,
    ) {
        let waiting_jobs = &self.shared().waiting_jobs;
        let store = Arc::clone(self.store().expect("a job in the store has one"));
        // Any number of jobs may end at once before they start; those with a slot are few.
        let _memory = match admitted {
            Admitted::Now(_) => None,
            Admitted::Queued(_) => {
                let weight = waiting_jobs.stored_weight(&key);
                Some(waiting_jobs.memory.reserve_reload(weight).await)
            }
        };
        match self.read_taken(&key, &*store).await {
            Ok(JobRecord { spec, attempt, .. }) => {
                let create = |_: &StoredJob| self.job_of_spec(&spec);
                let Some((job, _)) = waiting_jobs.register(&key, create) else {
                    return;
                };
                let job = Arc::new(job.with_input(spec.input.clone()));
                self.shared().registry.update(&job);
                let prepared = self.prepared_from_spec(spec, job);
                let tracker = self.tracker(prepared, Some((store, attempt)), claim);
                let tracker = Tracker {
                    began_at,
                    ..tracker
                };
                tracker.run(admitted).await;
            }
            Err(ReloadError::Closing) => drop(waiting_jobs.remove_stored(&key)),
            Err(ReloadError::Ended(record)) => {
                // Those that follow the job see its end.
                if let Some(job) = waiting_jobs.known_handle(&key) {
                    job.adopt_end(*record);
                }
                drop(waiting_jobs.remove_stored(&key));
                if let Some(claim) = claim {
                    claim.ack().await;
                }
            }
            Err(ReloadError::Unreadable(reason)) => {
                drop(admitted);
                let create = |stored: &StoredJob| self.job_of_entry(&key, stored);
                if let Some((job, attempt)) = waiting_jobs.register(&key, create) {
                    self.fail_unreadable(&job, (store, attempt), claim, reason)
                        .await;
                }
            }
        }
    }

    /// A job whose record cannot be read, from what is known without it.
    fn job_of_entry(&self, (account, id): &JobKey, stored: &StoredJob) -> Job {
        Job::new(NewJob {
            account: account.clone(),
            id: id.clone(),
            kind: stored.kind,
            api: stored.api,
            policies: stored.api.policies(),
            target: Arc::clone(&stored.target),
            input: Bytes::from_static(b"{}"),
            secrets: Vec::new(),
            created_at: stored.created_at(),
            deadline: None,
            hook: stored.hook().map(Arc::new),
            trace: None,
            for_readers: false,
            history: None,
            max_output: 0,
        })
    }

    /// Ends a job whose input cannot be read.
    async fn fail_unreadable(
        &self,
        job: &Arc<Job>,
        (store, attempt): (Arc<dyn Store>, u32),
        claim: Option<ClaimGuard>,
        reason: String,
    ) {
        tracing::error!(job = %job.id(), reason, "failed to read input of job");
        let error = format!("failed to read the input of the job: {reason}");
        let Some(end) = job.decide_end(TerminalState::Failed(error)) else {
            return;
        };
        let webhook = self.webhook_of(job);
        let recorder = self.recorder(store, attempt, webhook.as_ref(), Caller::Detached);
        let ended = EndedJob {
            job: Arc::clone(job),
            end,
            recorder: Some(recorder),
            claim,
            webhook: TerminalWebhook::Outbox,
            on_error: OnStoreError::Retry,
        };
        self.finish_job(ended)
            .await
            .expect("store errors are retried");
    }
}

impl TakenJob {
    /// Runs a job that has waited. `claim` is its queue entry, if it was taken from the queue. `began_at`
    /// is set if a remote worker has the job since a previous server process.
    pub(crate) async fn run(
        self,
        claim: Option<ClaimGuard>,
        admitted: Admitted,
        began_at: Option<Timestamp>,
    ) {
        let Self {
            service,
            key,
            resident,
            ..
        } = self;
        let Some(resident) = resident else {
            return service.run_stored(key, claim, admitted, began_at).await;
        };
        let ResidentJob {
            prepared,
            location,
            recorded,
        } = *resident;
        drop(location);
        let tracker = service.tracker(prepared, recorded, claim);
        let tracker = Tracker {
            began_at,
            ..tracker
        };
        tracker.run(admitted).await;
    }
}
