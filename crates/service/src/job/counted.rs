//! Counts the job among the open jobs of its model, from its registration until it ends.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;
use tidegate_core::Account;

use super::{Inner, Job, State};
use crate::open_jobs::OpenJobs;

impl Job {
    /// Counts the job, which is new, until it ends.
    pub(crate) fn count_in(&self, open_jobs: &Arc<OpenJobs>) {
        open_jobs.add_waiting(&self.inner.account, self.inner.created_at);
        self.with(|state| state.counted_in = Some(Arc::clone(open_jobs)));
    }

    /// The caller counts the job from now on.
    pub(crate) fn hand_over_count(&self) {
        self.with(|state| state.counted_in = None);
    }

    /// The job, which the caller has counted as waiting, counts itself from now on.
    pub(crate) fn take_over_count(&self, open_jobs: &Arc<OpenJobs>) {
        self.with(|state| state.counted_in = Some(Arc::clone(open_jobs)));
    }

    /// Stops counting a job that this server does not run.
    pub(crate) fn stop_counting(&self) {
        self.with(|state| state.stop_counting(&self.inner.account, self.inner.created_at));
    }
}

impl State {
    pub(super) fn stop_counting(&mut self, account: &Account, accepted_at: Timestamp) {
        if let Some(open_jobs) = self.counted_in.take() {
            open_jobs.remove(account, accepted_at, self.status);
        }
    }
}

impl Drop for Inner {
    /// A job that was refused after it was registered never ends.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.stop_counting(&self.account, self.created_at);
    }
}
