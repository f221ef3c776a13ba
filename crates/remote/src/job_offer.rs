//! A job on its way to a worker.

use tidegate_core::Work;

use crate::executor::RemoteExecutor;
use crate::worker::WorkerId;

/// A job on its way to a worker. Dropped before it has [arrived](JobOffer::confirm_delivered), the job goes to the
/// next worker that asks.
#[must_use = "dropping a offer sends the job to another worker"]
pub struct JobOffer {
    remote: RemoteExecutor,
    work: Work,
    worker: WorkerId,
    /// Which delivery of the job this is.
    delivery: u32,
    arrived: bool,
}

impl JobOffer {
    pub(crate) fn new(remote: RemoteExecutor, work: Work, worker: WorkerId, delivery: u32) -> Self {
        Self {
            remote,
            work,
            worker,
            delivery,
            arrived: false,
        }
    }

    /// The job.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The worker has it, as far as anybody can know.
    pub fn confirm_delivered(mut self) {
        self.arrived = true;
        self.remote.arrived(&self.work.id, self.delivery);
    }
}

impl Drop for JobOffer {
    fn drop(&mut self) {
        if !self.arrived {
            self.remote
                .undelivered_offer(&self.work.id, &self.worker, self.delivery);
        }
    }
}
