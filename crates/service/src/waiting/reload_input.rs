//! Reloads the input of a waiting job from the store: for clients that look at the job, and when the job
//! starts or ends.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::planted;
use tidegate_core::port::Admitted;
use tidegate_core::store::{Store, StoreError};

use super::claims::ClaimGuard;
use super::waiting_jobs::{EvictedJob, WaitingInput, WaitingJob};
use crate::job::Job;
use crate::job_service::JobService;
use crate::run::finish::{EndedJob, TerminalWebhook};
use crate::run::recorder::{Caller, OnStoreError};
use crate::run::tracker::Tracker;
use crate::snapshot::TerminalState;
use crate::submit::PreparedJob;

/// The pause after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Why an input was not reloaded.
enum ReloadError {
    /// The server shuts down before the store could be read: the next process runs the job.
    Closing,
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

    async fn reload_input(
        &self,
        evicted: &EvictedJob,
        store: &dyn Store,
    ) -> Result<PreparedJob, ReloadError> {
        let job = &evicted.job;
        loop {
            match store.get(job.account(), job.id()).await {
                Ok(Some(record)) => {
                    let spec = record.spec;
                    planted!(ForeignInput, let spec = tidegate_core::record::JobSpec {
                        input: tidegate_core::planted::previous(spec.input),
                        ..spec
                    });
                    let job = Arc::new(job.with_input(spec.input.clone()));
                    return Ok(self.prepared_from_spec(spec, job, evicted.deadline));
                }
                Ok(None) => {
                    let reason = "its record is missing from the store";
                    return Err(ReloadError::Unreadable(reason.to_owned()));
                }
                Err(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_))) => {
                    return Err(ReloadError::Unreadable(chain(&error).to_string()));
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Full(_))) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "failed to reload input of job, retrying");
                }
            }
            if self.shared().closing.is_cancelled() {
                return Err(ReloadError::Closing);
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
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

impl WaitingJob {
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
            input,
            recorded,
        } = self;
        let (evicted, store, attempt) = match (input, recorded) {
            (WaitingInput::Resident(prepared, location), recorded) => {
                drop(location);
                let tracker = service.tracker(*prepared, recorded, claim);
                return Tracker {
                    began_at,
                    ..tracker
                }
                .run(admitted)
                .await;
            }
            (WaitingInput::Evicted(evicted), Some((store, attempt))) => (evicted, store, attempt),
            (WaitingInput::Evicted(_), None) => {
                unreachable!("only recorded jobs are evicted")
            }
        };
        // Any number of jobs may end at once before they start; those with a slot are few.
        let _memory = match admitted {
            Admitted::Now(_) => None,
            Admitted::Queued(_) => {
                let memory = &service.shared().waiting_jobs.memory;
                Some(memory.reserve_reload(evicted.weight).await)
            }
        };
        match service.reload_input(&evicted, &*store).await {
            Ok(prepared) => {
                service.shared().registry.update(&prepared.job);
                let tracker = service.tracker(prepared, Some((store, attempt)), claim);
                Tracker {
                    began_at,
                    ..tracker
                }
                .run(admitted)
                .await;
            }
            Err(ReloadError::Closing) => service.shared().registry.forget(&evicted.job),
            Err(ReloadError::Unreadable(reason)) => {
                drop(admitted);
                service
                    .fail_unreadable(&evicted.job, (store, attempt), claim, reason)
                    .await;
            }
        }
    }
}
