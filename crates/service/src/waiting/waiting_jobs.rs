//! The jobs that wait in a queue, with what they need to run. When their inputs do not fit in memory,
//! only a reference to the record is kept. A waiting job has no task: it costs memory and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::queue::QueueName;
use tidegate_core::store::Store;
use tidegate_core::{Account, JobId};
use tokio::time::Instant;

use super::input_memory::{InputLocation, InputMemory};
use crate::job::Job;
use crate::job_service::JobService;
use crate::submit::PreparedJob;

/// The waiting jobs of all models.
pub(crate) struct WaitingJobs {
    pub(crate) memory: InputMemory,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<(Account, JobId), WaitingJob>,
    /// How many jobs of each account wait in each queue. No inner map is empty.
    counts: HashMap<QueueName, HashMap<Account, usize>>,
    /// The accounts of the jobs of a previous server process: remote workers know only the ids.
    from_previous_run: HashMap<JobId, Account>,
}

/// What is known of a job that a previous server process accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromPreviousRun {
    /// When it last began, as far as that is recorded.
    pub(crate) began_at: Option<Timestamp>,
}

/// A job that waits.
pub(crate) struct WaitingJob {
    /// The service that accepted it.
    pub(crate) service: JobService,
    pub(crate) input: WaitingInput,
    /// Its store, and how often it was started before; absent for jobs in memory only.
    pub(crate) recorded: Option<(Arc<dyn Store>, u32)>,
}

/// Where the input of a waiting job is.
pub(crate) enum WaitingInput {
    /// In memory, of which it holds a share.
    Resident(Box<PreparedJob>, InputLocation),
    /// In the store only.
    Evicted(EvictedJob),
}

/// A waiting job whose input is in the store only.
pub(crate) struct EvictedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) previous_run: Option<FromPreviousRun>,
    /// The memory that its input takes once it is reloaded.
    pub(crate) weight: usize,
}

impl WaitingJob {
    /// A waiting job; its input stays in memory if `location` says so.
    pub(crate) fn new(
        service: JobService,
        prepared: PreparedJob,
        location: InputLocation,
        recorded: Option<(Arc<dyn Store>, u32)>,
    ) -> Self {
        let input = match location {
            InputLocation::Store if recorded.is_some() => WaitingInput::Evicted(EvictedJob {
                job: Arc::new(prepared.job.without_input()),
                deadline: prepared.deadline,
                previous_run: prepared.previous_run,
                weight: prepared.checked.weight(),
            }),
            location => WaitingInput::Resident(Box::new(prepared), location),
        };
        Self {
            service,
            input,
            recorded,
        }
    }

    pub(crate) fn job(&self) -> &Arc<Job> {
        match &self.input {
            WaitingInput::Resident(prepared, _) => &prepared.job,
            WaitingInput::Evicted(evicted) => &evicted.job,
        }
    }

    /// Absent for jobs that this server process accepted.
    pub(crate) fn previous_run(&self) -> Option<FromPreviousRun> {
        match &self.input {
            WaitingInput::Resident(prepared, _) => prepared.previous_run,
            WaitingInput::Evicted(evicted) => evicted.previous_run,
        }
    }

    fn queue_name(&self) -> &QueueName {
        &self.service.model.queue_name
    }
}

impl WaitingJobs {
    /// No jobs; the inputs of jobs to come may take `memory` bytes.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            memory: InputMemory::new(memory),
            inner: Mutex::default(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn insert(&self, waiting: WaitingJob) {
        let queue = waiting.queue_name().clone();
        let key = key_of(waiting.job());
        self.with(|inner| {
            let accounts = inner.counts.entry(queue).or_default();
            *accounts.entry(key.0.clone()).or_default() += 1;
            if waiting.previous_run().is_some() {
                inner.from_previous_run.insert(key.1.clone(), key.0.clone());
            }
            inner.jobs.insert(key, waiting);
        });
    }

    /// Removes the job with this id, if it waits.
    pub(crate) fn take(&self, account: &Account, id: &JobId) -> Option<WaitingJob> {
        self.with(|inner| inner.remove(&(account.clone(), id.clone())))
    }

    /// Removes the job with this id, if it waits in this queue and a previous server process accepted it.
    pub(crate) fn take_from_previous_run(
        &self,
        queue: &QueueName,
        id: &JobId,
    ) -> Option<WaitingJob> {
        self.with(|inner| {
            let key = (inner.from_previous_run.get(id)?.clone(), id.clone());
            if inner.jobs.get(&key)?.queue_name() != queue {
                return None;
            }
            inner.remove(&key)
        })
    }

    /// Removes exactly this job, if it waits; its id may have been used again.
    pub(crate) fn take_exact(&self, job: &Job) -> Option<WaitingJob> {
        self.with(|inner| {
            inner
                .contains(job)
                .then(|| inner.remove(&key_of(job)))
                .flatten()
        })
    }

    /// Whether exactly this job waits.
    pub(crate) fn contains(&self, job: &Job) -> bool {
        self.with(|inner| inner.contains(job))
    }

    /// The jobs of a queue that are not recorded.
    pub(crate) fn unrecorded(&self, queue: &QueueName) -> Vec<Arc<Job>> {
        let is_unrecorded =
            |waiting: &&WaitingJob| waiting.recorded.is_none() && waiting.queue_name() == queue;
        self.with(|inner| {
            inner
                .jobs
                .values()
                .filter(is_unrecorded)
                .map(|waiting| Arc::clone(waiting.job()))
                .collect()
        })
    }

    /// Whether no job waits in a queue.
    pub(crate) fn is_empty(&self, queue: &QueueName) -> bool {
        self.with(|inner| !inner.counts.contains_key(queue))
    }

    /// How many jobs of an account wait in a queue.
    pub(crate) fn count(&self, queue: &QueueName, account: &Account) -> usize {
        self.with(|inner| {
            inner
                .counts
                .get(queue)
                .and_then(|accounts| accounts.get(account))
                .copied()
                .unwrap_or_default()
        })
    }
}

impl Inner {
    fn contains(&self, job: &Job) -> bool {
        self.jobs
            .get(&key_of(job))
            .is_some_and(|waiting| waiting.job().is(job))
    }

    fn remove(&mut self, key: &(Account, JobId)) -> Option<WaitingJob> {
        let waiting = self.jobs.remove(key)?;
        let (account, id) = key;
        if self.from_previous_run.get(id) == Some(account) {
            self.from_previous_run.remove(id);
        }
        let queue = waiting.queue_name();
        if let Some(accounts) = self.counts.get_mut(queue) {
            if let Some(count) = accounts.get_mut(account) {
                *count -= 1;
                if *count == 0 {
                    accounts.remove(account);
                }
            }
            if accounts.is_empty() {
                self.counts.remove(queue);
            }
        }
        Some(waiting)
    }
}

fn key_of(job: &Job) -> (Account, JobId) {
    (job.account().clone(), job.id().clone())
}
