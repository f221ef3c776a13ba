//! Handles to jobs that are in the store only. They exist while they are in use: by a client that
//! waits for its end, a reader of its stream.

use std::collections::HashMap;
use std::sync::Arc;

use super::waiting_jobs::JobKey;
use crate::job::{Job, WeakJob};

/// The number of handles from which unused ones are removed.
const MIN_PURGE: usize = 64;

/// The handles, by key.
#[derive(Default)]
pub(super) struct JobHandles {
    jobs: HashMap<JobKey, WeakJob>,
    /// The number of handles at which the next purge is due.
    purge_at: usize,
}

impl JobHandles {
    pub(super) fn get(&self, key: &JobKey) -> Option<Arc<Job>> {
        self.jobs.get(key)?.upgrade().map(Arc::new)
    }

    pub(super) fn get_or_create(&mut self, key: &JobKey, create: impl FnOnce() -> Job) -> Arc<Job> {
        if let Some(job) = self.get(key) {
            return job;
        }
        let job = Arc::new(create());
        self.insert(key.clone(), &job);
        job
    }

    pub(super) fn insert(&mut self, key: JobKey, job: &Job) {
        if self.jobs.len() >= self.purge_at.max(MIN_PURGE) {
            self.jobs.retain(|_, job| job.is_alive());
            self.purge_at = 2 * self.jobs.len();
        }
        self.jobs.insert(key, job.downgrade());
    }

    pub(super) fn remove(&mut self, key: &JobKey) {
        self.jobs.remove(key);
    }
}
