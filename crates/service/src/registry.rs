//! The jobs in memory: all that have not ended and, for a limited time, those that have.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Account, JobId};
use tokio::time::Instant;

use crate::Job;
use crate::submit::OnDuplicateId;

/// Limits on the ended jobs that are kept in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    pub(crate) jobs: usize,
    pub(crate) bytes: usize,
    pub(crate) age: Duration,
}

/// The key of a job. Both parts are reference-counted, so creating one does not allocate.
type Key = (Account, JobId);

/// The jobs in memory, by account and id.
pub(crate) struct Registry {
    retention: Retention,
    inner: Mutex<Inner>,
}

struct Inner {
    jobs: HashMap<Key, Arc<Job>>,
    /// The jobs that have ended, oldest first.
    ended: VecDeque<RetainedJob>,
    ended_bytes: usize,
}

struct RetainedJob {
    job: Arc<Job>,
    ended_at: Instant,
    weight: usize,
}

impl Registry {
    pub(crate) fn new(retention: Retention) -> Self {
        // Twice the size that is needed: removals leave tombstones, and a full table is rehashed
        // often.
        let jobs = HashMap::with_capacity(2 * retention.jobs);
        Self {
            retention,
            inner: Mutex::new(Inner {
                jobs,
                ended: VecDeque::new(),
                ended_bytes: 0,
            }),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        let key = (account.clone(), id.clone());
        self.with(|inner| {
            inner.forget_older(self.retention.age);
            inner.jobs.get(&key).cloned()
        })
    }

    /// Adds a job. Returns the existing job with this account and id instead if it has not ended,
    /// or if `on_duplicate` says that an ended job answers the request; otherwise an ended job is
    /// replaced.
    pub(crate) fn insert(
        &self,
        job: Arc<Job>,
        on_duplicate: OnDuplicateId,
    ) -> Result<(), Arc<Job>> {
        let key = key_of(&job);
        self.with(|inner| match inner.jobs.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(job);
                Ok(())
            }
            Entry::Occupied(known)
                if on_duplicate == OnDuplicateId::Answer || !known.get().status().is_terminal() =>
            {
                Err(Arc::clone(known.get()))
            }
            Entry::Occupied(mut ended) => {
                ended.insert(job);
                Ok(())
            }
        })
    }

    /// Adds a job that exists already. It replaces a job with its id, which the store does not accept.
    pub(crate) fn put(&self, job: Arc<Job>) {
        self.with(|inner| inner.jobs.insert(key_of(&job), job));
    }

    /// Replaces the handle of a job by one with or without its input.
    pub(crate) fn update(&self, job: &Arc<Job>) {
        self.with(|inner| {
            if let Some(known) = inner
                .jobs
                .get_mut(&key_of(job))
                .filter(|known| known.is(job))
            {
                *known = Arc::clone(job);
            }
        });
    }

    /// Removes a job that this server does not run: it was refused, or is left to another server.
    pub(crate) fn forget(&self, job: &Arc<Job>) {
        self.with(|inner| inner.remove(job));
        job.stop_counting();
    }

    /// Marks a job as ended and drops the oldest ended jobs above the limits. Has no effect on a
    /// job that is not registered.
    pub(crate) fn retire(&self, job: &Arc<Job>) {
        let weight = job.weight();
        self.with(|inner| {
            if !inner.contains(job) {
                return;
            }
            inner.ended_bytes += weight;
            inner.ended.push_back(RetainedJob {
                job: Arc::clone(job),
                ended_at: Instant::now(),
                weight,
            });
            while inner.ended.len() > self.retention.jobs
                || (inner.ended_bytes > self.retention.bytes && inner.ended.len() > 1)
            {
                inner.forget_oldest();
            }
            inner.forget_older(self.retention.age);
        });
    }

    /// Calls `visit` with each job in memory, ended or not. New jobs wait until it returns.
    pub(crate) fn visit(&self, visit: impl FnMut(&Arc<Job>)) {
        self.with(|inner| {
            inner.forget_older(self.retention.age);
            inner.jobs.values().for_each(visit);
        });
    }

    pub(crate) fn running(&self) -> Vec<Arc<Job>> {
        self.with(|inner| {
            inner
                .jobs
                .values()
                .filter(|job| !job.status().is_terminal())
                .cloned()
                .collect()
        })
    }
}

impl Inner {
    fn forget_older(&mut self, age: Duration) {
        while self
            .ended
            .front()
            .is_some_and(|oldest| oldest.ended_at.elapsed() > age)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.ended.pop_front() {
            self.ended_bytes -= oldest.weight;
            self.remove(&oldest.job);
        }
    }

    fn contains(&self, job: &Arc<Job>) -> bool {
        self.jobs
            .get(&key_of(job))
            .is_some_and(|known| known.is(job))
    }

    /// Removes this job, but not another one that uses its id.
    fn remove(&mut self, job: &Arc<Job>) {
        if let Entry::Occupied(known) = self.jobs.entry(key_of(job))
            && known.get().is(job)
        {
            known.remove();
        }
    }
}

fn key_of(job: &Job) -> Key {
    (job.account().clone(), job.id().clone())
}
