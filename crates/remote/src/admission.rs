//! The port: workers elsewhere as an executor like any other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, JobId, Outcome, Refusal, Work};
use tokio::sync::{mpsc, oneshot};

use crate::dispatch_state::AdmissionWaiter;
use crate::executor::RemoteExecutor;
use crate::job_offer::JobOffer;
use crate::worker::WorkerId;

/// The most jobs that a worker gets by one question.
pub const MAX_JOBS_PER_TAKE: usize = 256;
/// AssignmentState often a job looks whether its worker is still there.
const WORKER_CHECK_INTERVAL: Duration = Duration::from_millis(250);

#[async_trait]
impl Executor for RemoteExecutor {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        if wait == WaitPolicy::NoWait {
            // Nobody knows who asks next.
            return Err(Refusal::AtCapacity);
        }
        let (give, place) = oneshot::channel();
        self.enqueue(AdmissionWaiter {
            account: account.clone(),
            give,
        })?;
        let closed = Refusal::NotReady {
            health: Health::Unknown,
        };
        Ok(Admitted::Queued(Box::pin(async move {
            let slot: WorkerSlot = place.await.map_err(|_| closed)?;
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

    /// What a worker takes is known to the worker only.
    fn schema(&self) -> Option<Arc<Bytes>> {
        None
    }

    fn report(&self) -> HealthReport {
        // It takes jobs, also while no worker is there.
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
        let count = self.worker_counts();
        PoolStatus {
            slots: count.at_work(),
            free: count.idle,
            ..PoolStatus::default()
        }
    }
}

/// The right to send one job to a worker that asks.
pub(crate) struct WorkerSlot {
    pub(crate) remote: RemoteExecutor,
    pub(crate) worker: WorkerId,
    /// To the question of the worker. When it is gone, the job waits for another.
    pub(crate) offer: oneshot::Sender<JobOffer>,
}

#[async_trait]
impl Admission for WorkerSlot {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self {
            remote,
            worker,
            offer: slot,
        } = *self;
        let (tell, events) = mpsc::unbounded_channel();
        let id = work.id.clone();
        if let Some(offer) = remote.begin(work, tell, worker) {
            // Whoever asked may have left meanwhile; the offer comes back by itself then.
            drop(slot.send(offer));
        }
        Box::new(RemoteRun { remote, id, events })
    }
}

/// The right to leave one job to the worker that has it from a server before this one.
pub(crate) struct Adoption {
    pub(crate) remote: RemoteExecutor,
    pub(crate) worker: WorkerId,
    /// AssignmentState long it has had the job.
    pub(crate) before: Duration,
}

#[async_trait]
impl Admission for Adoption {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let (tell, events) = mpsc::unbounded_channel();
        self.remote.adopt(&work, tell, &self.worker, self.before);
        Box::new(RemoteRun {
            remote: self.remote,
            id: work.id,
            events,
        })
    }
}

/// A job in the hands of some worker.
struct RemoteRun {
    remote: RemoteExecutor,
    id: JobId,
    /// Never full: a worker waits for the answer to each report, and the desk bounds what a job may give.
    events: mpsc::UnboundedReceiver<Event>,
}

#[async_trait]
impl Running for RemoteRun {
    async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => {
                    return event.unwrap_or_else(|| Event::Ended(Outcome::Failed { error: "the job was forgotten".to_owned() }));
                }
                () = tokio::time::sleep(WORKER_CHECK_INTERVAL) => self.remote.check_worker(&self.id),
            }
        }
    }

    fn cancel(&mut self) {
        self.remote.cancel(&self.id);
    }
}

impl Drop for RemoteRun {
    fn drop(&mut self) {
        // Nothing happens when it is over, which is nearly always.
        self.remote.cancel(&self.id);
    }
}
