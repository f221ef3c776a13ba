//! Which of the jobs that clients wait for must be read next. The progress of all of them is read at once;
//! the record or the events of a job only when there is something new.

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::leases::JobRef;
use tidegate_core::live::WakeReason;

/// The jobs that clients wait for.
#[derive(Default)]
pub(super) struct FollowedJobs {
    jobs: BTreeMap<JobRef, Followed>,
    /// The jobs that must be read and are not being read.
    due: VecDeque<JobRef>,
    /// The jobs whose progress must be read.
    unchecked: Vec<JobRef>,
}

/// A job that a client waits for.
#[derive(Default)]
struct Followed {
    /// Why it must be read.
    due: Option<WakeReason>,
    is_read: bool,
}

impl FollowedJobs {
    /// Adds a job. It may have ended before it was subscribed to.
    pub(super) fn add(&mut self, key: JobRef) {
        self.jobs.entry(key.clone()).or_default();
        self.unchecked.push(key);
    }

    /// A job must be read.
    pub(super) fn wake(&mut self, key: &JobRef, reason: WakeReason) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        if job.due.is_none() && !job.is_read {
            self.due.push_back(key.clone());
        }
        // Who reads the record reads the events too.
        if job.due != Some(WakeReason::Ended) {
            job.due = Some(reason);
        }
    }

    /// The progress of all jobs must be read.
    pub(super) fn check_all(&mut self) {
        self.unchecked = self.jobs.keys().cloned().collect();
    }

    /// The jobs whose progress must be read now.
    pub(super) fn take_unchecked(&mut self) -> Vec<JobRef> {
        std::mem::take(&mut self.unchecked)
    }

    /// The next job that must be read, and why.
    pub(super) fn next_read(&mut self) -> Option<(JobRef, WakeReason)> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(job) = self.jobs.get_mut(&key)
                && let Some(reason) = job.due.take()
            {
                job.is_read = true;
                return Some((key, reason));
            }
        }
    }

    /// A job was read. Returns whether it is not followed any more.
    pub(super) fn was_read(&mut self, key: &JobRef, ended: bool) -> bool {
        if ended {
            return self.jobs.remove(key).is_some();
        }
        if let Some(job) = self.jobs.get_mut(key) {
            job.is_read = false;
            if job.due.is_some() {
                self.due.push_back(key.clone());
            }
        }
        false
    }
}
