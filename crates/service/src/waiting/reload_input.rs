//! What jobs that wait need and what is in the store meanwhile: read again for whoever looks at such a job, and when it
//! has its turn or is over before that.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::planted::{Planted, planted, the_one_before};
use tidegate_core::port::Admitted;
use tidegate_core::store::{Store, StoreError};

use crate::job::Job;
use crate::job_service::{Inner, JobService};
use crate::run::recorder::{Caller, FinishResult, JobRecorder};
use crate::run::tracker::Tracker;
use crate::snapshot::TerminalState;
use crate::submit::PreparedJob;
use crate::waiting::claims::ClaimGuard;
use crate::waiting::waiting_jobs::{EvictedJob, WaitingInput, WaitingJob};

/// The pause after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Why what a job needs could not be had.
enum ReloadError {
    /// The server goes before the store could be read: the next one finds the job.
    FromPreviousRun,
    /// It never can be.
    Lost(String),
}

impl JobService {
    /// The job with its input, wherever that is.
    pub(crate) async fn with_input(&self, job: Arc<Job>) -> Arc<Job> {
        let Some(store) = self
            .inner
            .deps
            .store
            .as_ref()
            .filter(|_| job.input().is_none())
        else {
            return job;
        };
        match store.get(job.account(), job.id()).await {
            Ok(Some(record)) => Arc::new(job.with_input(record.spec.input)),
            Ok(None) => job,
            Err(error) => {
                tracing::error!(job = %job.id(), error = %chain(&error), "the input of a job that waits could not be read");
                job
            }
        }
    }

    /// Reads what a job needs to run.
    async fn reload_input(
        &self,
        evicted: &EvictedJob,
        store: &dyn Store,
    ) -> Result<PreparedJob, ReloadError> {
        let job = &evicted.job;
        loop {
            match store.get(job.account(), job.id()).await {
                Ok(Some(mut record)) => {
                    if planted(Planted::ForeignInput)
                        && let Some(other) = the_one_before(
                            Planted::ForeignInput,
                            &String::from_utf8_lossy(&record.spec.input),
                        )
                    {
                        record.spec.input = other.into();
                    }
                    let job = Arc::new(job.with_input(record.spec.input.clone()));
                    return Ok(self.prepare_again(record.spec, job, evicted.deadline));
                }
                Ok(None) => {
                    return Err(ReloadError::Lost(
                        "it is not in the store any more".to_owned(),
                    ));
                }
                Err(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_))) => {
                    return Err(ReloadError::Lost(chain(&error).to_string()));
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Full(_))) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "a job that has its admitted cannot be read yet");
                }
            }
            if self.inner.closing.is_cancelled() {
                return Err(ReloadError::FromPreviousRun);
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Ends a job that cannot run because what it needs cannot be read.
    async fn fail_unreadable(
        &self,
        job: &Arc<Job>,
        (store, attempt): (Arc<dyn Store>, u32),
        claim: Option<ClaimGuard>,
        reason: String,
    ) {
        let Inner {
            registry,
            metrics,
            closing,
            ..
        } = &*self.inner;
        tracing::error!(job = %job.id(), reason, "the input of a job cannot be read: it has failed");
        let Some(end) = job.settle(TerminalState::Failed(format!(
            "the server cannot read what the job input: {reason}"
        ))) else {
            return;
        };
        let webhook = job
            .hook()
            .and_then(|hook| self.webhook_for(job.api(), hook));
        let kept = JobRecorder::new(
            store,
            webhook.as_ref(),
            attempt,
            self.inner.begin_write(),
            Caller::Detached,
            closing.clone(),
        );
        let finished = kept.finish(job, &end).await;
        if let Some(claim) = claim {
            claim.ack().await;
        }
        metrics.finished(job.api(), job.kind(), end.status, None);
        job.end(end);
        registry.over(Arc::clone(job));
        if let FinishResult::Committed(Some(message)) = finished {
            self.send_again(message);
        }
    }
}

impl WaitingJob {
    /// Lets a job run that has waited. `claim` is its entry, if it was taken out of the line; `began_at` is there if
    /// somebody has it already, from a server before this one.
    pub(crate) async fn run(
        self,
        claim: Option<ClaimGuard>,
        admitted: Admitted,
        began_at: Option<Timestamp>,
    ) {
        let Self {
            service,
            input,
            kept,
        } = self;
        let (evicted, store, attempt) = match (input, kept) {
            (WaitingInput::Resident(prepared, place), kept) => {
                drop(place);
                return Tracker {
                    began_at,
                    ..service.tracker(*prepared, kept, claim)
                }
                .run(admitted)
                .await;
            }
            (WaitingInput::Evicted(evicted), Some((store, attempt))) => (evicted, store, attempt),
            (WaitingInput::Evicted(_), None) => {
                unreachable!("only what is in the store is evicted")
            }
        };
        // Any number may be over before their turn in one moment; those that have a place are few.
        let _room = match admitted {
            Admitted::Now(_) => None,
            Admitted::Queued(_) => Some(
                service
                    .inner
                    .waiting_jobs
                    .memory
                    .reserve_reload(evicted.weight)
                    .await,
            ),
        };
        match service.reload_input(&evicted, &*store).await {
            Ok(prepared) => {
                service.inner.registry.show(&prepared.job);
                Tracker {
                    began_at,
                    ..service.tracker(prepared, Some((store, attempt)), claim)
                }
                .run(admitted)
                .await;
            }
            Err(ReloadError::FromPreviousRun) => service.inner.registry.forget(&evicted.job),
            Err(ReloadError::Lost(reason)) => {
                drop(admitted);
                service
                    .fail_unreadable(&evicted.job, (store, attempt), claim, reason)
                    .await;
            }
        }
    }
}
