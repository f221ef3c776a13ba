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

/// The free places of one version.
pub(crate) struct ModelCapacity {
    executor: Arc<dyn Executor>,
    loading: LoadTiming,
    pending: Arc<Pending>,
}

/// The places that are given out and have no slot yet.
#[derive(Default)]
struct Pending {
    count: AtomicUsize,
    changed: Notify,
}

/// The right to take one message. It ends when the job has its slot, or does not run.
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
            loading,
            pending: Arc::default(),
        }
    }

    /// The right to take one more message, if its job could start now.
    pub(crate) fn try_place(&self) -> Option<Place> {
        let pending = self.pending.count.load(Ordering::SeqCst);
        (self.executor.accepts().is_ok() && self.free() > pending).then(|| self.give())
    }

    /// Waits until one more job could start.
    pub(crate) async fn place(&self) -> Place {
        loop {
            if let Some(place) = self.try_place() {
                return place;
            }
            if self.executor.accepts().is_err() {
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

    /// Admits the job of a message that was taken with this place.
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
        let status = self.executor.pool_status();
        match self.loading {
            // The model is loaded for the job.
            LoadTiming::OnDemand if status.slots == 0 => 1,
            LoadTiming::OnDemand | LoadTiming::AtStart => status.free,
        }
    }

    fn give(&self) -> Place {
        self.pending.count.fetch_add(1, Ordering::SeqCst);
        Place(Arc::clone(&self.pending))
    }
}
