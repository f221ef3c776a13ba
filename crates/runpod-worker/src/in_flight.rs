//! The jobs of this worker, and its capacity for more.
//!
//! A job uses capacity from the request for it until the model has finished it. An undelivered result
//! does not use the model; but while the platform accepts no results, the worker takes no more jobs
//! after [`MAX_UNDELIVERED`] of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The most undelivered results before the worker stops taking jobs.
const MAX_UNDELIVERED: usize = 64;

#[derive(Default)]
pub(crate) struct InFlightJobs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<String, InFlightJob>,
    /// The most concurrent jobs.
    limit: usize,
    /// Jobs that were requested and have not arrived.
    reserved: usize,
    /// The sequence number of the next job.
    next: u64,
}

/// The capacity for more jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// How many more jobs can be requested.
    pub(crate) free: usize,
    /// The most concurrent jobs.
    pub(crate) limit: usize,
}

struct InFlightJob {
    sequence: u64,
    stop: CancellationToken,
    /// Whether the model has finished it and only its result is undelivered.
    finished: bool,
}

impl InFlightJobs {
    /// Adds a job and returns the token that stops it. `None` when the job is already here.
    pub(crate) fn add(&self, id: &str) -> Option<CancellationToken> {
        let mut inner = self.lock();
        if inner.jobs.contains_key(id) {
            return None;
        }
        let (sequence, stop) = (inner.next, CancellationToken::new());
        inner.next += 1;
        inner.jobs.insert(
            id.to_owned(),
            InFlightJob {
                sequence,
                stop: stop.clone(),
                finished: false,
            },
        );
        Some(stop)
    }

    /// Records that the model has finished a job whose result is not delivered yet.
    pub(crate) fn mark_finished(&self, id: &str) {
        if let Some(job) = self.lock().jobs.get_mut(id) {
            job.finished = true;
        }
        self.changed.notify_waiters();
    }

    /// Removes a job.
    pub(crate) fn remove(&self, id: &str) {
        self.lock().jobs.remove(id);
        self.changed.notify_waiters();
    }

    /// Stops a job. Returns whether it is here.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let inner = self.lock();
        let job = inner.jobs.get(id);
        if let Some(job) = job {
            job.stop.cancel();
        }
        job.is_some()
    }

    /// The ids of all jobs, in the order of arrival.
    pub(crate) fn ids(&self) -> Vec<String> {
        let inner = self.lock();
        let mut ids: Vec<(u64, &String)> = inner
            .jobs
            .iter()
            .map(|(id, job)| (job.sequence, id))
            .collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    /// Waits until there are no jobs.
    pub(crate) async fn wait_until_empty(&self) {
        self.until(|inner| inner.jobs.is_empty().then_some(()))
            .await;
    }

    /// Sets the most concurrent jobs; jobs that already run continue.
    pub(crate) fn set_limit(&self, limit: usize) {
        let before = std::mem::replace(&mut self.lock().limit, limit);
        if before != limit {
            tracing::info!(from = before, to = limit, "concurrency changed");
            self.changed.notify_waiters();
        }
    }

    /// Waits for capacity; with `raised_above`, also until the limit is above that.
    pub(crate) async fn capacity(&self, raised_above: Option<usize>) -> Capacity {
        self.until(|inner| {
            let (free, limit) = (inner.capacity(), inner.limit);
            let is_raised = raised_above.is_none_or(|before| limit > before);
            (free > 0 && is_raised).then_some(Capacity { free, limit })
        })
        .await
    }

    /// Reserves capacity for requested jobs until the reservation is dropped.
    pub(crate) fn reserve(&self, count: usize) -> Reservation<'_> {
        self.lock().reserved += count;
        Reservation {
            in_flight: self,
            count,
        }
    }

    async fn until<T>(&self, found: impl Fn(&Inner) -> Option<T>) -> T {
        loop {
            // Before the check, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = found(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn capacity(&self) -> usize {
        let finished = self.jobs.values().filter(|job| job.finished).count();
        if finished >= MAX_UNDELIVERED {
            return 0;
        }
        self.limit
            .saturating_sub(self.jobs.len() - finished + self.reserved)
    }
}

/// Reserved capacity.
pub(crate) struct Reservation<'a> {
    in_flight: &'a InFlightJobs,
    count: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.in_flight.lock().reserved -= self.count;
        self.in_flight.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn capacity(in_flight: &InFlightJobs) -> usize {
        let capacity = in_flight.capacity(None).now_or_never();
        capacity.map_or(0, |capacity| capacity.free)
    }

    #[test]
    fn capacity_excludes_reserved_and_running_jobs() {
        let in_flight = InFlightJobs::default();
        assert_eq!(capacity(&in_flight), 0);
        in_flight.set_limit(3);
        assert_eq!(capacity(&in_flight), 3);
        let reservation = in_flight.reserve(2);
        assert_eq!(capacity(&in_flight), 1);
        in_flight.add("a").unwrap();
        assert_eq!(capacity(&in_flight), 0);
        drop(reservation);
        assert_eq!(capacity(&in_flight), 2);
        in_flight.mark_finished("a");
        assert_eq!(capacity(&in_flight), 3);
        in_flight.set_limit(0);
        assert_eq!(capacity(&in_flight), 0);
    }

    #[test]
    fn capacity_can_be_limited_to_a_raised_limit() {
        let in_flight = InFlightJobs::default();
        in_flight.set_limit(2);
        assert_eq!(in_flight.capacity(Some(2)).now_or_never(), None);
        in_flight.set_limit(3);
        assert_eq!(
            in_flight.capacity(Some(2)).now_or_never(),
            Some(Capacity { free: 3, limit: 3 })
        );
        let _reservation = in_flight.reserve(3);
        assert_eq!(in_flight.capacity(Some(2)).now_or_never(), None);
    }

    #[test]
    fn undelivered_results_use_up_the_capacity() {
        let in_flight = InFlightJobs::default();
        in_flight.set_limit(1);
        for i in 0..MAX_UNDELIVERED {
            in_flight.add(&i.to_string()).unwrap();
            in_flight.mark_finished(&i.to_string());
        }
        assert_eq!(capacity(&in_flight), 0);
        in_flight.remove("7");
        assert_eq!(capacity(&in_flight), 1);
    }

    #[test]
    fn a_job_is_added_once() {
        let in_flight = InFlightJobs::default();
        let stop = in_flight.add("b").unwrap();
        assert!(in_flight.add("b").is_none());
        in_flight.add("a").unwrap();
        assert_eq!(in_flight.ids(), ["b", "a"]);
        assert!(in_flight.stop("b") && stop.is_cancelled());
        assert!(!in_flight.stop("c"));
    }
}
