//! Records which jobs are in the queue, many at once. A job that starts within the delay needs no record, so
//! short jobs cost nothing here.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::chain;
use tidegate_core::leases::{JobRef, Leases};
use tokio::sync::Notify;

/// How long jobs are collected. If the process ends meanwhile, the reconciliation queues them a second time,
/// and the store refuses the second run.
const DELAY: Duration = Duration::from_millis(200);

/// The jobs that are in the queue and not yet recorded as such.
#[derive(Debug, Clone, Default)]
pub struct QueuedMarks {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    jobs: Mutex<Vec<JobRef>>,
    added: Notify,
}

impl QueuedMarks {
    /// Adds a job that is in the queue.
    pub(super) fn add(&self, job: JobRef) {
        let mut jobs = self.lock();
        jobs.push(job);
        if jobs.len() == 1 {
            self.shared.added.notify_one();
        }
    }

    /// Records jobs, forever.
    pub async fn run(&self, leases: &dyn Leases) {
        loop {
            self.shared.added.notified().await;
            tokio::time::sleep(DELAY).await;
            let jobs = mem::take(&mut *self.lock());
            if let Err(error) = leases.mark_queued(&jobs).await {
                let count = jobs.len();
                tracing::debug!(count, error = %chain(&error), "failed to mark jobs as queued");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JobRef>> {
        self.shared
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
