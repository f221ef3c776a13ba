//! Records which jobs are in the queue, many at once. A job that starts within the delay needs no record, so
//! short jobs cost nothing here.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::chain;
use tidegate_core::leases::{JobRef, Leases};
use tidegate_core::queue::Queue;
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
    jobs: Mutex<HashSet<JobRef>>,
    added: Notify,
}

impl QueuedMarks {
    /// Adds a job that is in the queue.
    pub(super) fn add(&self, job: JobRef) {
        let mut jobs = self.lock();
        jobs.insert(job);
        if jobs.len() == 1 {
            self.shared.added.notify_one();
        }
    }

    /// Removes a job that a director has leased: the reconciliation does not look at its mark any more. If the
    /// lease is lost or given back, the store removes the mark.
    pub(super) fn remove(&self, job: &JobRef) {
        self.lock().remove(job);
    }

    /// Records jobs, forever. Jobs whose entry the queue may have lost since are not recorded: the
    /// reconciliation must find them.
    pub async fn run(&self, leases: &dyn Leases, queue: &dyn Queue) {
        // From before the jobs of the next batch were pushed.
        let mut epoch_before = queue.first_epoch().to_owned();
        loop {
            self.shared.added.notified().await;
            tokio::time::sleep(DELAY).await;
            let epoch = queue.epoch().await;
            let jobs: Vec<_> = mem::take(&mut *self.lock()).into_iter().collect();
            let count = jobs.len();
            match epoch {
                Ok(epoch) if epoch == epoch_before => {}
                Ok(epoch) => {
                    tracing::debug!(count, "the queue may have lost jobs, not marking them");
                    epoch_before = epoch;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(count, %error, "failed to read the epoch of the queue, not marking jobs");
                    continue;
                }
            }
            if let Err(error) = leases.mark_queued(&jobs, &epoch_before).await {
                tracing::debug!(count, error = %chain(&error), "failed to mark jobs as queued");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<JobRef>> {
        self.shared
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Account, JobId};

    use super::*;

    #[test]
    fn a_job_that_was_leased_is_not_recorded() {
        let job = |id| JobRef {
            account: Account::ANONYMOUS,
            id: JobId::parse(id).expect("an id"),
        };
        let marks = QueuedMarks::default();
        for id in ["leased", "waits"] {
            marks.add(job(id));
        }
        marks.remove(&job("leased"));
        assert_eq!(*marks.lock(), HashSet::from([job("waits")]));
    }
}
