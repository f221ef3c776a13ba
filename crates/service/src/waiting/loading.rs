//! The loading of the jobs of a previous server process, while requests are served already. Jobs that are
//! accepted meanwhile join their queue behind the older ones: their queue entries are kept here until the
//! loader has read the store up to them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::queue::QueueEntry;
use tidegate_core::record::Target;
use tokio::sync::Notify;

use super::waiting_jobs::JobKey;
use crate::job_service::JobService;

/// Finds the service of the model that runs a recorded job.
pub type ServiceLookup = Arc<dyn Fn(&Target) -> Option<JobService> + Send + Sync>;

/// A queue entry and the service of its queue.
pub(crate) type UnqueuedEntry = (JobService, QueueEntry);

/// The state of the loading. By default nothing is left to load.
#[derive(Default)]
pub(crate) struct Loading {
    state: Mutex<LoadState>,
    finished: Notify,
}

#[derive(Default)]
struct LoadState {
    /// Present while jobs are loaded.
    service_of: Option<ServiceLookup>,
    unqueued: HashMap<JobKey, UnqueuedEntry>,
    /// The keys of `unqueued`, in the order in which they joined, and of entries that were queued since.
    order: VecDeque<JobKey>,
}

impl Loading {
    fn with<R>(&self, f: impl FnOnce(&mut LoadState) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn begin(&self, service_of: ServiceLookup) {
        self.with(|state| state.service_of = Some(service_of));
    }

    pub(crate) fn is_active(&self) -> bool {
        self.with(|state| state.service_of.is_some())
    }

    /// Present while jobs are loaded.
    pub(crate) fn service_lookup(&self) -> Option<ServiceLookup> {
        self.with(|state| state.service_of.clone())
    }

    /// Waits until all jobs are loaded.
    pub(crate) async fn finished(&self) {
        loop {
            let finished = self.finished.notified();
            tokio::pin!(finished);
            finished.as_mut().enable();
            if !self.is_active() {
                return;
            }
            finished.await;
        }
    }

    /// Adds a job with `insert`. Returns its queue entry if it is to be queued now: `insert` has added
    /// the job, and no older job is still to be loaded.
    pub(crate) fn add(
        &self,
        service: &JobService,
        entry: QueueEntry,
        insert: impl FnOnce() -> bool,
    ) -> Option<QueueEntry> {
        self.with(|state| {
            if !insert() {
                return None;
            }
            if state.service_of.is_none() {
                return Some(entry);
            }
            let key = (entry.account.clone(), entry.id.clone());
            state.order.push_back(key.clone());
            state.unqueued.insert(key, (service.clone(), entry));
            None
        })
    }

    /// Adds a job that the loader has read, with `insert`, unless it was added before. Returns the
    /// entry to queue now, if there is one.
    pub(crate) fn add_loaded(
        &self,
        service: &JobService,
        entry: QueueEntry,
        insert: impl FnOnce() -> bool,
    ) -> Option<UnqueuedEntry> {
        self.with(|state| {
            let key = (entry.account.clone(), entry.id.clone());
            let known = state.unqueued.remove(&key);
            known.or_else(|| insert().then(|| (service.clone(), entry)))
        })
    }

    /// The entry of a job that waits here already, to queue now: the loader has read all older jobs.
    pub(crate) fn take_unqueued(&self, key: &JobKey) -> Option<UnqueuedEntry> {
        self.with(|state| state.unqueued.remove(key))
    }

    /// Ends the loading if no entry is left; otherwise returns those that are to be queued first.
    pub(crate) fn finish(&self) -> Vec<UnqueuedEntry> {
        let left = self.with(|state| {
            let order = std::mem::take(&mut state.order);
            let left: Vec<_> = order
                .iter()
                .filter_map(|key| state.unqueued.remove(key))
                .collect();
            if left.is_empty() {
                state.service_of = None;
            }
            left
        });
        if left.is_empty() {
            self.finished.notify_waiters();
        }
        left
    }
}
