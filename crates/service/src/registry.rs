//! Which jobs the server knows: those that run, and for a while those that are over.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Account, JobId};
use tokio::time::Instant;

use crate::Job;
use crate::submit::OnDuplicateId;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    pub(crate) jobs: usize,
    pub(crate) bytes: usize,
    pub(crate) age: Duration,
}

/// A job's name among all. Both parts are counted references or nothing: making one costs no memory.
type Key = (Account, JobId);

/// The jobs by account and id.
pub(crate) struct Registry {
    retention: Retention,
    inner: Mutex<Inner>,
}

struct Inner {
    jobs: HashMap<Key, Arc<Job>>,
    /// Those that are over, oldest first.
    past: VecDeque<Past>,
    past_bytes: usize,
}

struct Past {
    job: Arc<Job>,
    ended: Instant,
    weight: usize,
}

impl Registry {
    pub(crate) fn new(retention: Retention) -> Self {
        // Roomy: in a full table every new job means tidying up after those that left.
        let jobs = HashMap::with_capacity(2 * retention.jobs);
        Self {
            retention,
            inner: Mutex::new(Inner {
                jobs,
                past: VecDeque::new(),
                past_bytes: 0,
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

    /// Adds a job unless one of its account with its id is running, which is returned instead. A past one gives way to a
    /// new request, but is the answer to the same one.
    pub(crate) fn insert(&self, job: Arc<Job>, replay: OnDuplicateId) -> Result<(), Arc<Job>> {
        let key = key_of(&job);
        self.with(|inner| match inner.jobs.entry(key) {
            Entry::Vacant(place) => {
                place.insert(job);
                Ok(())
            }
            Entry::Occupied(known)
                if replay == OnDuplicateId::Answer || !known.get().status().is_terminal() =>
            {
                Err(Arc::clone(known.get()))
            }
            Entry::Occupied(mut past) => {
                past.insert(job);
                Ok(())
            }
        })
    }

    /// Replaces the handle of a job by one with its input, or without.
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

    /// Forgets a job that is left to another server.
    pub(crate) fn forget(&self, job: &Arc<Job>) {
        self.with(|inner| inner.remove(job));
    }

    /// Keeps a job that has ended for a while, and drops the oldest ones above the limits. Has no effect on
    /// a job that is not registered.
    pub(crate) fn retire(&self, job: &Arc<Job>) {
        let weight = job.weight();
        self.with(|inner| {
            if !inner.contains(job) {
                return;
            }
            inner.past_bytes += weight;
            inner.past.push_back(Past {
                job: Arc::clone(job),
                ended: Instant::now(),
                weight,
            });
            while inner.past.len() > self.retention.jobs
                || (inner.past_bytes > self.retention.bytes && inner.past.len() > 1)
            {
                inner.forget_oldest();
            }
            inner.forget_older(self.retention.age);
        });
    }

    /// All that are known, over or not.
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        self.with(|inner| {
            inner.forget_older(self.retention.age);
            inner.jobs.values().cloned().collect()
        })
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
            .past
            .front()
            .is_some_and(|past| past.ended.elapsed() > age)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(past) = self.past.pop_front() {
            self.past_bytes -= past.weight;
            self.remove(&past.job);
        }
    }

    fn contains(&self, job: &Arc<Job>) -> bool {
        self.jobs
            .get(&key_of(job))
            .is_some_and(|known| known.is(job))
    }

    /// Removes exactly this job: its id may have been used again.
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
