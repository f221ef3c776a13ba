//! A job on its way to a worker.

use tidegate_core::Work;

use crate::remote::Remote;
use crate::worker::WorkerId;

/// A job on its way to a worker. Dropped before it has [arrived](Parcel::arrived), the job goes to the
/// next worker that asks.
#[must_use = "dropping a parcel sends the job to another worker"]
pub struct Parcel {
    remote: Remote,
    work: Work,
    worker: WorkerId,
    /// Which delivery of the job this is.
    delivery: u32,
    arrived: bool,
}

impl Parcel {
    pub(crate) fn new(remote: Remote, work: Work, worker: WorkerId, delivery: u32) -> Self {
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
    pub fn arrived(mut self) {
        self.arrived = true;
        self.remote.arrived(&self.work.id, self.delivery);
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if !self.arrived {
            self.remote
                .came_back(&self.work.id, &self.worker, self.delivery);
        }
    }
}
