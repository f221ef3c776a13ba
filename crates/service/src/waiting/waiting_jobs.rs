//! Jobs that wait in a line, with everything that they need to run, or, when that is too much for the memory, with
//! where it is written down. They have no task of their own: a hundred thousand of them cost memory and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::queue::QueueName;
use tidegate_core::store::Store;
use tidegate_core::{Account, JobId};
use tokio::time::Instant;

use crate::job::Job;
use crate::job_service::JobService;
use crate::submit::PreparedJob;
use crate::waiting::input_memory::{InputMemory, InputPlace};

/// The jobs that wait, of all desks.
pub(crate) struct WaitingJobs {
    pub(crate) memory: InputMemory,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<(Account, JobId), WaitingJob>,
    /// How many of each account wait in each line. None of them is empty.
    lines: HashMap<QueueName, HashMap<Account, usize>>,
    /// Whose those are that a server before this one has left: who works on them knows their ids only.
    previous_run: HashMap<JobId, Account>,
}

/// What is known of a job that a server before this one has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromPreviousRun {
    /// When it was begun the last time, as far as that is written down.
    pub(crate) began_at: Option<Timestamp>,
}

/// A job that waits.
pub(crate) struct WaitingJob {
    /// The desk that took it.
    pub(crate) service: JobService,
    pub(crate) input: WaitingInput,
    /// Where it is written down, and how often it was given to a model before.
    pub(crate) kept: Option<(Arc<dyn Store>, u32)>,
}

/// What a job needs to run.
pub(crate) enum WaitingInput {
    /// It is here, and takes this much of the memory.
    Resident(Box<PreparedJob>, InputPlace),
    /// It is in the store.
    Evicted(EvictedJob),
}

/// What is known of a job whose input is in the store.
pub(crate) struct EvictedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) previous_run: Option<FromPreviousRun>,
    /// What it will take in memory.
    pub(crate) weight: usize,
}

impl WaitingJob {
    /// A job with everything that it needs, as far as there is room for that.
    pub(crate) fn new(
        service: JobService,
        prepared: PreparedJob,
        place: InputPlace,
        kept: Option<(Arc<dyn Store>, u32)>,
    ) -> Self {
        let input = match place {
            InputPlace::Store if kept.is_some() => {
                let job = Arc::new(prepared.job.without_input());
                WaitingInput::Evicted(EvictedJob {
                    job,
                    deadline: prepared.deadline,
                    previous_run: prepared.previous_run,
                    weight: prepared.checked.weight(),
                })
            }
            place => WaitingInput::Resident(Box::new(prepared), place),
        };
        Self {
            service,
            input,
            kept,
        }
    }

    pub(crate) fn job(&self) -> &Arc<Job> {
        match &self.input {
            WaitingInput::Resident(prepared, _) => &prepared.job,
            WaitingInput::Evicted(evicted) => &evicted.job,
        }
    }

    /// Absent when this server has taken it in.
    pub(crate) fn previous_run(&self) -> Option<FromPreviousRun> {
        match &self.input {
            WaitingInput::Resident(prepared, _) => prepared.previous_run,
            WaitingInput::Evicted(evicted) => evicted.previous_run,
        }
    }
}

impl WaitingJobs {
    /// Nobody yet; the inputs of those who come may take so many bytes of memory.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            memory: InputMemory::new(memory),
            inner: Mutex::default(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more.
    pub(crate) fn insert(&self, waiting: WaitingJob) {
        let (job, line) = (waiting.job(), waiting.service.inner.line.clone());
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            *inner
                .lines
                .entry(line)
                .or_default()
                .entry(key.0.clone())
                .or_default() += 1;
            if waiting.previous_run().is_some() {
                inner.previous_run.insert(key.1.clone(), key.0.clone());
            }
            inner.jobs.insert(key, waiting);
        });
    }

    /// The job with this id, if it waits; it does not any more.
    pub(crate) fn take(&self, account: &Account, id: &JobId) -> Option<WaitingJob> {
        self.with(|inner| {
            let waiting = inner.jobs.remove(&(account.clone(), id.clone()))?;
            inner.forget_one(&waiting);
            Some(waiting)
        })
    }

    /// The job with this id, if it waits in this line and was left by a server before this one.
    pub(crate) fn take_from_previous_run(
        &self,
        line: &QueueName,
        id: &JobId,
    ) -> Option<WaitingJob> {
        self.with(|inner| {
            let key = (inner.previous_run.get(id)?.clone(), id.clone());
            if inner.jobs.get(&key)?.service.inner.line != *line {
                return None;
            }
            let waiting = inner.jobs.remove(&key)?;
            inner.forget_one(&waiting);
            Some(waiting)
        })
    }

    /// This very job, if it waits; its id may have been used again.
    pub(crate) fn take_exact(&self, job: &Job) -> Option<WaitingJob> {
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            if !inner
                .jobs
                .get(&key)
                .is_some_and(|waiting| waiting.job().is(job))
            {
                return None;
            }
            let waiting = inner.jobs.remove(&key)?;
            inner.forget_one(&waiting);
            Some(waiting)
        })
    }

    /// Whether this very job waits.
    pub(crate) fn has(&self, job: &Job) -> bool {
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            inner
                .jobs
                .get(&key)
                .is_some_and(|waiting| waiting.job().is(job))
        })
    }

    /// The jobs of a line that are not written down.
    pub(crate) fn unrecorded(&self, line: &QueueName) -> Vec<Arc<Job>> {
        let of_it =
            |waiting: &&WaitingJob| waiting.kept.is_none() && waiting.service.inner.line == *line;
        self.with(|inner| {
            inner
                .jobs
                .values()
                .filter(of_it)
                .map(|waiting| Arc::clone(waiting.job()))
                .collect()
        })
    }

    /// Whether nobody waits in a line.
    pub(crate) fn is_empty(&self, line: &QueueName) -> bool {
        self.with(|inner| !inner.lines.contains_key(line))
    }

    /// How many of an account wait in a line.
    pub(crate) fn count(&self, line: &QueueName, account: &Account) -> usize {
        self.with(|inner| {
            inner
                .lines
                .get(line)
                .and_then(|accounts| accounts.get(account))
                .copied()
                .unwrap_or_default()
        })
    }
}

impl Inner {
    /// It has left.
    fn forget_one(&mut self, waiting: &WaitingJob) {
        let (account, id, line) = (
            waiting.job().account(),
            waiting.job().id(),
            &waiting.service.inner.line,
        );
        if self.previous_run.get(id) == Some(account) {
            self.previous_run.remove(id);
        }
        let Some(accounts) = self.lines.get_mut(line) else {
            return;
        };
        if let Some(count) = accounts.get_mut(account) {
            *count -= 1;
            if *count == 0 {
                accounts.remove(account);
            }
        }
        if accounts.is_empty() {
            self.lines.remove(line);
        }
    }
}
