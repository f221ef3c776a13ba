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
use crate::jobs::JobService;
use crate::room::{Memory, Room};
use crate::taking::Launch;

/// The jobs that wait, of all desks.
pub(crate) struct Parking {
    pub(crate) memory: Memory,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<(Account, JobId), Parked>,
    /// How many of each account wait in each line. None of them is empty.
    lines: HashMap<QueueName, HashMap<Account, usize>>,
    /// Whose those are that a server before this one has left: who works on them knows their ids only.
    left: HashMap<JobId, Account>,
}

/// What is known of a job that a server before this one has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// When it was begun the last time, as far as that is written down.
    pub(crate) began_at: Option<Timestamp>,
}

/// A job that waits.
pub(crate) struct Parked {
    /// The desk that took it.
    pub(crate) desk: JobService,
    pub(crate) needs: Needs,
    /// Where it is written down, and how often it was given to a model before.
    pub(crate) kept: Option<(Arc<dyn Store>, u32)>,
}

/// What a job needs to run.
pub(crate) enum Needs {
    /// It is here, and takes this much of the memory.
    AtHand(Box<Launch>, Room),
    /// It is in the store.
    Away(Away),
}

/// What is known of a job whose input is in the store.
pub(crate) struct Away {
    pub(crate) job: Arc<Job>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) left: Option<Left>,
    /// What it will take in memory.
    pub(crate) weight: usize,
}

impl Parked {
    /// A job with everything that it needs, as far as there is room for that.
    pub(crate) fn new(
        desk: JobService,
        launch: Launch,
        room: Room,
        kept: Option<(Arc<dyn Store>, u32)>,
    ) -> Self {
        let needs = match room {
            Room::Store if kept.is_some() => {
                let job = Arc::new(launch.job.without_input());
                Needs::Away(Away {
                    job,
                    deadline: launch.deadline,
                    left: launch.left,
                    weight: launch.checked.weight(),
                })
            }
            room => Needs::AtHand(Box::new(launch), room),
        };
        Self { desk, needs, kept }
    }

    pub(crate) fn job(&self) -> &Arc<Job> {
        match &self.needs {
            Needs::AtHand(launch, _) => &launch.job,
            Needs::Away(away) => &away.job,
        }
    }

    /// Absent when this server has taken it in.
    pub(crate) fn left(&self) -> Option<Left> {
        match &self.needs {
            Needs::AtHand(launch, _) => launch.left,
            Needs::Away(away) => away.left,
        }
    }
}

impl Parking {
    /// Nobody yet; the inputs of those who come may take so many bytes of memory.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            memory: Memory::new(memory),
            inner: Mutex::default(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more.
    pub(crate) fn park(&self, parked: Parked) {
        let (job, line) = (parked.job(), parked.desk.inner.line.clone());
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            *inner
                .lines
                .entry(line)
                .or_default()
                .entry(key.0.clone())
                .or_default() += 1;
            if parked.left().is_some() {
                inner.left.insert(key.1.clone(), key.0.clone());
            }
            inner.jobs.insert(key, parked);
        });
    }

    /// The job with this id, if it waits; it does not any more.
    pub(crate) fn take(&self, account: &Account, id: &JobId) -> Option<Parked> {
        self.with(|inner| {
            let parked = inner.jobs.remove(&(account.clone(), id.clone()))?;
            inner.forget_one(&parked);
            Some(parked)
        })
    }

    /// The job with this id, if it waits in this line and was left by a server before this one.
    pub(crate) fn take_left(&self, line: &QueueName, id: &JobId) -> Option<Parked> {
        self.with(|inner| {
            let key = (inner.left.get(id)?.clone(), id.clone());
            if inner.jobs.get(&key)?.desk.inner.line != *line {
                return None;
            }
            let parked = inner.jobs.remove(&key)?;
            inner.forget_one(&parked);
            Some(parked)
        })
    }

    /// This very job, if it waits; its id may have been used again.
    pub(crate) fn take_this(&self, job: &Job) -> Option<Parked> {
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            if !inner
                .jobs
                .get(&key)
                .is_some_and(|parked| parked.job().is(job))
            {
                return None;
            }
            let parked = inner.jobs.remove(&key)?;
            inner.forget_one(&parked);
            Some(parked)
        })
    }

    /// Whether this very job waits.
    pub(crate) fn has(&self, job: &Job) -> bool {
        let key = (job.account().clone(), job.id().clone());
        self.with(|inner| {
            inner
                .jobs
                .get(&key)
                .is_some_and(|parked| parked.job().is(job))
        })
    }

    /// The jobs of a line that are not written down.
    pub(crate) fn unwritten(&self, line: &QueueName) -> Vec<Arc<Job>> {
        let of_it = |parked: &&Parked| parked.kept.is_none() && parked.desk.inner.line == *line;
        self.with(|inner| {
            inner
                .jobs
                .values()
                .filter(of_it)
                .map(|parked| Arc::clone(parked.job()))
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
    fn forget_one(&mut self, parked: &Parked) {
        let (account, id, line) = (
            parked.job().account(),
            parked.job().id(),
            &parked.desk.inner.line,
        );
        if self.left.get(id) == Some(account) {
            self.left.remove(id);
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
