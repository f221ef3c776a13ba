//! Decides when the next message of a version may be taken: only when a job could start now, so that a
//! director never holds a message that another one could run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};
use tokio::sync::Notify;

use crate::director::LoadTiming;

/// The pause after the executor refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often the slots are counted again while taken jobs wait for theirs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The free places of one version, or of the versions that were trained from it.
pub(crate) struct ModelCapacity {
    executor: Arc<dyn Executor>,
    places: Places,
    pending: Arc<Pending>,
}

/// What limits the places.
enum Places {
    /// The free slots of the executor.
    Slots(LoadTiming),
    /// The jobs that run: each trained version has an executor of its own, and which one the next message
    /// needs is not known before it is taken. As many jobs run as the source has slots.
    Jobs,
}

/// The places that are given out and have no slot yet.
#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    changed: Notify,
}

/// The right to take one message. It ends when the job has its slot, or does not run; for a job of a trained
/// version, when the job has ended.
pub(crate) struct Place(Arc<Pending>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

impl ModelCapacity {
    pub(crate) fn new(executor: Arc<dyn Executor>, loading: LoadTiming) -> Self {
        Self {
            executor,
            places: Places::Slots(loading),
            pending: Arc::default(),
        }
    }

    /// The places for jobs of the versions that were trained from the version of this executor.
    pub(crate) fn of_trained(executor: Arc<dyn Executor>) -> Self {
        Self {
            executor,
            places: Places::Jobs,
            pending: Arc::default(),
        }
    }

    /// The right to take one more message, if its job could start now.
    pub(crate) fn try_place(&self) -> Option<Place> {
        let pending = self.pending.count.load(Ordering::SeqCst);
        (self.accepts() && self.free() > pending).then(|| self.give())
    }

    fn accepts(&self) -> bool {
        match self.places {
            Places::Slots(_) => self.executor.accepts().is_ok(),
            Places::Jobs => true,
        }
    }

    /// Waits until one more job could start.
    pub(crate) async fn place(&self) -> Place {
        loop {
            if let Some(place) = self.try_place() {
                return place;
            }
            if !self.accepts() {
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
            if self.pending.count.load(Ordering::SeqCst) > 0 {
                tokio::select! {
                    biased;
                    () = self.pending.changed.notified() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                continue;
            }
            // An admission shows that a slot is free. It is not kept: the child of its slot may die before
            // there is a job.
            let admitted = match self
                .executor
                .admit(&Account::shared(), WaitPolicy::Unbounded)
            {
                Ok(Admitted::Now(admission)) => Ok(admission),
                Ok(Admitted::Queued(admission)) => admission.await,
                Err(refusal) => Err(refusal),
            };
            match admitted {
                Ok(_) => return self.give(),
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }

    /// Admits the job of a message of the version itself that was taken with this place.
    pub(crate) fn admit(&self, place: Place) -> Result<Admitted, Refusal> {
        match self
            .executor
            .admit(&Account::shared(), WaitPolicy::Unbounded)?
        {
            Admitted::Now(admission) => Ok(Admitted::Now(admission)),
            Admitted::Queued(pending) => Ok(Admitted::Queued(Box::pin(async move {
                let admission = pending.await;
                drop(place);
                admission
            }))),
        }
    }

    fn free(&self) -> usize {
        let status = self.executor.slot_counts();
        match self.places {
            // The model is loaded for the job.
            Places::Slots(LoadTiming::OnDemand) if status.slots == 0 => 1,
            Places::Slots(LoadTiming::OnDemand | LoadTiming::AtStart) => status.free,
            Places::Jobs => status.slots.max(1),
        }
    }

    fn give(&self) -> Place {
        self.pending.count.fetch_add(1, Ordering::SeqCst);
        Place(Arc::clone(&self.pending))
    }
}
