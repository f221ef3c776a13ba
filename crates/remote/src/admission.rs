//! The port [`Executor`]: admission to remote workers, and the jobs that run on them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, OnCommitted, Running, WaitPolicy};
use tidegate_core::{Account, Event, JobId, Outcome, Refusal, Work};
use tokio::sync::oneshot;

use crate::dispatch_state::AdmissionWaiter;
use crate::event_queue::{EventReceiver, event_queue};
use crate::executor::RemoteExecutor;
use crate::job_offer::JobOffer;
use crate::worker::WorkerId;

/// The most jobs that a worker gets in one response.
pub const MAX_JOBS_PER_TAKE: usize = 256;
/// How often a running job checks its worker.
const WORKER_CHECK_INTERVAL: Duration = Duration::from_millis(250);

#[async_trait]
impl Executor for RemoteExecutor {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        if wait == WaitPolicy::NoWait {
            // It is not known when the next worker asks.
            return Err(Refusal::AtCapacity);
        }
        let (slot, waiting) = oneshot::channel();
        self.enqueue(AdmissionWaiter {
            account: account.clone(),
            slot,
        })?;
        let closed = Refusal::NotReady {
            health: Health::Unknown,
        };
        Ok(Admitted::Queued(Box::pin(async move {
            let slot: WorkerSlot = waiting.await.map_err(|_| closed)?;
            Ok(Box::new(slot) as Box<dyn Admission>)
        })))
    }

    fn accepts(&self) -> Result<(), Refusal> {
        if self.is_closed() {
            Err(Refusal::Closing)
        } else {
            Ok(())
        }
    }

    /// A worker may ask for many jobs at once.
    fn max_pending(&self) -> usize {
        MAX_JOBS_PER_TAKE
    }

    /// Only the worker knows its input schema.
    fn schema(&self) -> Option<Arc<Bytes>> {
        None
    }

    fn report(&self) -> HealthReport {
        // Jobs are accepted even while there is no worker.
        HealthReport {
            health: Health::Ready,
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }

    async fn stop(&self) {
        self.close();
    }

    fn pool_status(&self) -> PoolStatus {
        let counts = self.worker_counts();
        PoolStatus {
            slots: counts.available(),
            free: counts.idle,
            ..PoolStatus::default()
        }
    }
}

/// The right to send one job to a worker that asks.
pub(crate) struct WorkerSlot {
    pub(crate) executor: RemoteExecutor,
    pub(crate) worker: WorkerId,
    /// To the worker's take request. When the request is gone, the job waits for another worker.
    pub(crate) offer: oneshot::Sender<JobOffer>,
}

#[async_trait]
impl Admission for WorkerSlot {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self {
            executor,
            worker,
            offer: take_request,
        } = *self;
        let (sender, events) = event_queue();
        let id = work.id.clone();
        if let Some(offer) = executor.start(work, sender, worker) {
            // The worker may have disconnected; dropping the offer then requeues the job.
            drop(take_request.send(offer));
        }
        Box::new(RemoteRun {
            executor,
            id,
            events,
        })
    }
}

/// The right to leave one job with the worker that has it from the previous server process.
pub(crate) struct Adoption {
    pub(crate) executor: RemoteExecutor,
    pub(crate) worker: WorkerId,
    /// How long the worker has had the job.
    pub(crate) before: Duration,
}

#[async_trait]
impl Admission for Adoption {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let (sender, events) = event_queue();
        self.executor
            .adopt(&work, sender, &self.worker, self.before);
        Box::new(RemoteRun {
            executor: self.executor,
            id: work.id,
            events,
        })
    }
}

/// A job that runs on a worker.
struct RemoteRun {
    executor: RemoteExecutor,
    id: JobId,
    events: EventReceiver,
}

#[async_trait]
impl Running for RemoteRun {
    async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                event = self.events.next() => {
                    return event.unwrap_or_else(|| Event::Ended(Outcome::Failed { error: "the platform no longer tracks the job".to_owned() }));
                }
                () = tokio::time::sleep(WORKER_CHECK_INTERVAL) => self.executor.check_worker(&self.id),
            }
        }
    }

    fn cancel(&mut self) {
        self.executor.cancel(&self.id);
    }

    fn on_committed(&mut self) -> Option<OnCommitted> {
        self.events.on_committed()
    }
}

impl Drop for RemoteRun {
    fn drop(&mut self) {
        // Has no effect on a job that has ended, which is the usual case.
        self.executor.cancel(&self.id);
    }
}
