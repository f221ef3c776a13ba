//! What jobs that wait need and what is in the store meanwhile: read again for whoever looks at such a job, and when it
//! has its turn or is over before that.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::planted::{Planted, planted, the_one_before};
use tidegate_core::port::Admitted;
use tidegate_core::store::{Store, StoreError};

use crate::hands::Held;
use crate::job::Job;
use crate::jobs::{Inner, JobService};
use crate::keeping::{Finished, Kept, Waits};
use crate::parking::{Away, Needs, Parked};
use crate::snapshot::TerminalState;
use crate::taking::Launch;
use crate::tracker::Tracker;

/// The pause after the store could not be read.
const AGAIN: Duration = Duration::from_millis(500);

/// Why what a job needs could not be had.
enum Unread {
    /// The server goes before the store could be read: the next one finds the job.
    Left,
    /// It never can be.
    Lost(String),
}

impl JobService {
    /// The job with its input, wherever that is.
    pub(crate) async fn with_input(&self, job: Arc<Job>) -> Arc<Job> {
        let Some(store) = self
            .inner
            .tools
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
    async fn recall(&self, away: &Away, store: &dyn Store) -> Result<Launch, Unread> {
        let job = &away.job;
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
                    return Ok(self.launch_again(record.spec, job, away.deadline));
                }
                Ok(None) => return Err(Unread::Lost("it is not in the store any more".to_owned())),
                Err(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_))) => {
                    return Err(Unread::Lost(chain(&error).to_string()));
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Full(_))) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "a job that has its turn cannot be read yet");
                }
            }
            if self.inner.closing.is_cancelled() {
                return Err(Unread::Left);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Ends a job that cannot run because what it needs cannot be read.
    async fn end_unread(
        &self,
        job: &Arc<Job>,
        (store, attempt): (Arc<dyn Store>, u32),
        held: Option<Held>,
        reason: String,
    ) {
        let Inner {
            registry,
            meter,
            closing,
            ..
        } = &*self.inner;
        tracing::error!(job = %job.id(), reason, "the input of a job cannot be read: it has failed");
        let Some(end) = job.settle(TerminalState::Failed(format!(
            "the server cannot read what the job needs: {reason}"
        ))) else {
            return;
        };
        let webhook = job
            .hook()
            .and_then(|hook| self.webhook_for(job.api(), hook));
        let kept = Kept::new(
            store,
            webhook.as_ref(),
            attempt,
            self.inner.noting(),
            Waits::NoExecutor,
            closing.clone(),
        );
        let finished = kept.finish(job, &end).await;
        if let Some(held) = held {
            held.ack().await;
        }
        meter.finished(job.api(), job.kind(), end.status, None);
        job.end(end);
        registry.over(Arc::clone(job));
        if let Finished::Written(Some(letter)) = finished {
            self.send_again(letter);
        }
    }
}

impl Parked {
    /// Lets a job run that has waited. `held` is its entry, if it was taken out of the line; `began_at` is there if
    /// somebody has it already, from a server before this one.
    pub(crate) async fn run(self, held: Option<Held>, turn: Admitted, began_at: Option<Timestamp>) {
        let Self { desk, needs, kept } = self;
        let (away, store, attempt) = match (needs, kept) {
            (Needs::AtHand(launch, room), kept) => {
                drop(room);
                return Tracker {
                    began_at,
                    ..desk.tracker(*launch, kept, held)
                }
                .run(turn)
                .await;
            }
            (Needs::Away(away), Some((store, attempt))) => (away, store, attempt),
            (Needs::Away(_), None) => unreachable!("only what is in the store is away"),
        };
        // Any number may be over before their turn in one moment; those that have a place are few.
        let _room = match turn {
            Admitted::Now(_) => None,
            Admitted::Queued(_) => Some(desk.inner.parking.memory.for_recalled(away.weight).await),
        };
        match desk.recall(&away, &*store).await {
            Ok(launch) => {
                desk.inner.registry.show(&launch.job);
                Tracker {
                    began_at,
                    ..desk.tracker(launch, Some((store, attempt)), held)
                }
                .run(turn)
                .await;
            }
            Err(Unread::Left) => desk.inner.registry.forget(&away.job),
            Err(Unread::Lost(reason)) => {
                drop(turn);
                desk.end_unread(&away.job, (store, attempt), held, reason)
                    .await;
            }
        }
    }
}
