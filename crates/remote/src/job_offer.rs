//! A job in the response to a worker's take request.

use tidegate_core::Work;

use crate::executor::RemoteExecutor;
use crate::worker::WorkerId;

/// A job on its way to a worker. If it is dropped before
/// [`confirm_delivered`](JobOffer::confirm_delivered), the job goes to the next worker that asks.
#[must_use = "dropping an offer sends the job to another worker"]
pub struct JobOffer {
    executor: RemoteExecutor,
    work: Work,
    worker: WorkerId,
    /// The number of this delivery of the job.
    delivery: u32,
    delivered: bool,
}

impl JobOffer {
    pub(crate) fn new(
        executor: RemoteExecutor,
        work: Work,
        worker: WorkerId,
        delivery: u32,
    ) -> Self {
        Self {
            executor,
            work,
            worker,
            delivery,
            delivered: false,
        }
    }

    /// The job.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The response was written to a connection that was still open.
    pub fn confirm_delivered(mut self) {
        self.delivered = true;
        self.executor.offer_delivered(&self.work.id, self.delivery);
    }
}

impl Drop for JobOffer {
    fn drop(&mut self) {
        if !self.delivered {
            self.executor
                .offer_undelivered(&self.work.id, &self.worker, self.delivery);
        }
    }
}
