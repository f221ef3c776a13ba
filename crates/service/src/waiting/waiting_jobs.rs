//! The jobs that wait in a queue. A recorded job is an entry of an index, and is read from the store when
//! it starts; the first waiting jobs keep what they need to run in memory. A waiting job has no task: it
//! costs memory and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::queue::{QueueEntry, QueueName};
use tidegate_core::record::{JobSummary, Target};
use tidegate_core::store::{JobHead, Store};
use tidegate_core::{Account, JobId, Status};

use super::entries::entry_of_job;
use super::input_memory::{InputLocation, InputMemory};
use super::job_handles::JobHandles;
use super::stored_job::StoredJob;
use crate::job::Job;
use crate::job_service::JobService;
use crate::registry::Registry;
use crate::submit::PreparedJob;

/// The key of a job. Both parts are reference-counted.
pub(crate) type JobKey = (Account, JobId);

/// The waiting jobs of all models.
pub(crate) struct WaitingJobs {
    pub(crate) memory: InputMemory,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// In boxes, because a map has up to twice as many places as entries.
    jobs: HashMap<JobKey, Box<WaitingJob>>,
    /// How many jobs of each account wait in each queue. No inner map is empty.
    counts: HashMap<QueueName, HashMap<Account, usize>>,
    /// Handles to jobs that are in the store only.
    handles: JobHandles,
    /// The targets of the jobs that are in the store only; most jobs share one.
    targets: HashSet<Arc<Target>>,
}

/// A job that waits.
struct WaitingJob {
    /// The service that accepted it.
    service: JobService,
    place: Place,
}

/// Where a waiting job is.
enum Place {
    Memory(Box<ResidentJob>),
    Store(StoredJob),
}

/// A waiting job that is ready to run.
pub(crate) struct ResidentJob {
    pub(crate) prepared: PreparedJob,
    /// Its share of the memory for inputs.
    pub(crate) location: InputLocation,
    /// Its store, and how often it was started before; absent for jobs in memory only.
    pub(crate) recorded: Option<(Arc<dyn Store>, u32)>,
}

/// A job that no longer waits.
pub(crate) struct TakenJob {
    /// The service that accepted it.
    pub(crate) service: JobService,
    pub(crate) key: JobKey,
    /// Absent for a job that is in the store only. Lookups find it among the waiting jobs until
    /// [`WaitingJobs::register`] or [`WaitingJobs::remove_stored`].
    pub(crate) resident: Option<Box<ResidentJob>>,
    /// When it last began, for a job of a previous server process.
    pub(crate) began_at: Option<Timestamp>,
}

impl WaitingJob {
    fn queue_name(&self) -> &QueueName {
        &self.service.model.queue_name
    }

    fn is_taken(&self) -> bool {
        matches!(&self.place, Place::Store(stored) if stored.is_taken)
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

    /// Adds a job that stays in memory.
    pub(crate) fn insert_resident(&self, service: JobService, resident: ResidentJob) {
        let key = key_of(&resident.prepared.job);
        let place = Place::Memory(Box::new(resident));
        self.with(|inner| inner.insert(key, WaitingJob { service, place }));
    }

    /// Adds a job that is in the store only, unless one with its id waits; returns whether it was added.
    /// From now on it is counted as waiting here. `job` is its handle if there is one already, which is
    /// removed from the registry.
    pub(crate) fn insert_stored(
        &self,
        service: &JobService,
        key: JobKey,
        mut stored: StoredJob,
        job: Option<&Arc<Job>>,
    ) -> bool {
        self.with(|inner| {
            if inner.jobs.contains_key(&key) {
                return false;
            }
            stored.target = inner.shared_target(stored.target);
            match job {
                Some(job) => {
                    inner.handles.insert(key.clone(), job);
                    job.hand_over_count();
                    service.shared().registry.forget(job);
                }
                None => {
                    let open_jobs = &service.model.metrics.open_jobs;
                    open_jobs.add_waiting(&key.0, stored.created_at());
                }
            }
            let waiting = WaitingJob {
                service: service.clone(),
                place: Place::Store(stored),
            };
            inner.insert(key, waiting);
            true
        })
    }

    /// Takes the job with this id, if it waits.
    pub(crate) fn take(&self, account: &Account, id: &JobId) -> Option<TakenJob> {
        self.with(|inner| inner.take(&(account.clone(), id.clone())))
    }

    /// Takes the job with this id, if it waits in this queue and a previous server process accepted it.
    pub(crate) fn take_from_previous_run(&self, queue: &QueueName, id: &JobId) -> Option<TakenJob> {
        self.with(|inner| {
            // A remote worker knows only the id.
            let accounts = inner.counts.get(queue)?.keys();
            let key = accounts
                .map(|account| (account.clone(), id.clone()))
                .find(|key| inner.is_from_previous_run(key, queue))?;
            inner.take(&key)
        })
    }

    /// Takes exactly this job, if it waits; its id may have been used again.
    pub(crate) fn take_exact(&self, job: &Job) -> Option<TakenJob> {
        self.with(|inner| inner.waits(job).then(|| inner.take(&key_of(job))).flatten())
    }

    /// Whether exactly this job waits.
    pub(crate) fn contains(&self, job: &Job) -> bool {
        self.with(|inner| inner.waits(job))
    }

    /// A handle to a job that is in the store only, without its input; all handles share the state of the
    /// job. `create` creates the first one.
    pub(crate) fn handle(&self, key: &JobKey, create: impl FnOnce() -> Job) -> Option<Arc<Job>> {
        self.with(|inner| {
            inner.stored(key)?;
            Some(inner.handles.get_or_create(key, create))
        })
    }

    /// The handle to a job that is in the store only, if one is in use.
    pub(crate) fn known_handle(&self, key: &JobKey) -> Option<Arc<Job>> {
        self.with(|inner| inner.handles.get(key))
    }

    /// Keeps the state of a job that is in the store only until it is taken: it was changed.
    pub(crate) fn keep_handle(&self, job: &Arc<Job>) {
        let key = key_of(job);
        self.with(|inner| {
            if let Some(stored) = inner.stored(&key) {
                stored.changed = Some(Arc::clone(job));
            }
        });
    }

    /// Registers a job that was taken, so that lookups find it in the registry from now on. `create`
    /// creates its handle if none is in use. Returns also how often it was started before; `None` when it
    /// was removed meanwhile.
    pub(crate) fn register(
        &self,
        key: &JobKey,
        create: impl FnOnce(&StoredJob) -> Job,
    ) -> Option<(Arc<Job>, u32)> {
        self.with(|inner| {
            inner.stored(key)?;
            let WaitingJob { service, place } = *inner.jobs.remove(key)?;
            let Place::Store(stored) = place else {
                return None;
            };
            let job = inner.handles.get_or_create(key, || create(&stored));
            inner.handles.remove(key);
            job.take_over_count(&service.model.metrics.open_jobs);
            service.shared().registry.put(Arc::clone(&job));
            Some((job, stored.attempt))
        })
    }

    /// The memory that the input of a job takes that is in the store only.
    pub(crate) fn stored_weight(&self, key: &JobKey) -> usize {
        self.with(|inner| inner.stored(key).map_or(0, |stored| stored.weight as usize))
    }

    /// Removes a job that was taken and is left to the next server process, or has ended elsewhere.
    pub(crate) fn remove_stored(&self, key: &JobKey) -> Option<StoredJob> {
        self.with(|inner| {
            if !inner.jobs.get(key)?.is_taken() {
                return None;
            }
            inner.handles.remove(key);
            let waiting = inner.jobs.remove(key)?;
            let Place::Store(stored) = waiting.place else {
                return None;
            };
            let open_jobs = &waiting.service.model.metrics.open_jobs;
            open_jobs.remove(&key.0, stored.created_at(), Status::Queued);
            Some(stored)
        })
    }

    /// Whether a job with this id waits or is about to start.
    pub(crate) fn has(&self, key: &JobKey) -> bool {
        self.with(|inner| inner.jobs.contains_key(key))
    }

    /// Whether a job with this id waits, is about to start, or runs. Jobs move between the waiting jobs and
    /// the registry under the lock that this takes.
    pub(crate) fn is_open_here(&self, key: &JobKey, registry: &Registry) -> bool {
        self.with(|inner| {
            inner.jobs.contains_key(key)
                || registry
                    .get(&key.0, &key.1)
                    .is_some_and(|job| !job.status().is_terminal())
        })
    }

    /// Whether a job with this id of any account waits in this queue or is about to start. Looks at all
    /// waiting jobs.
    pub(crate) fn has_id(&self, queue: &QueueName, id: &JobId) -> bool {
        self.with(|inner| {
            inner
                .jobs
                .iter()
                .any(|((_, other), waiting)| other == id && waiting.queue_name() == queue)
        })
    }

    /// The jobs of a queue that are not recorded.
    pub(crate) fn unrecorded(&self, queue: &QueueName) -> Vec<Arc<Job>> {
        self.with(|inner| {
            let in_queue = inner
                .jobs
                .values()
                .filter(|waiting| waiting.queue_name() == queue);
            in_queue
                .filter_map(|waiting| match &waiting.place {
                    Place::Memory(resident) if resident.recorded.is_none() => {
                        Some(Arc::clone(&resident.prepared.job))
                    }
                    Place::Memory(_) | Place::Store(_) => None,
                })
                .collect()
        })
    }

    /// The queue entries of all waiting jobs, in the order in which the jobs were accepted.
    pub(crate) fn entries(&self) -> Vec<(JobService, QueueEntry)> {
        let mut entries = self.with(|inner| {
            let mut entries = Vec::with_capacity(inner.jobs.len());
            for (key, waiting) in inner.jobs.iter().filter(|(_, job)| !job.is_taken()) {
                let (created_at, entry) = match &waiting.place {
                    Place::Memory(resident) => {
                        let prepared = &resident.prepared;
                        (prepared.job.created_at(), entry_of_job(prepared))
                    }
                    Place::Store(stored) => (stored.created_at(), stored.entry(key)),
                };
                entries.push((created_at, waiting.service.clone(), entry));
            }
            entries
        });
        entries.sort_by_key(|(created_at, ..)| *created_at);
        let pair = |(_, service, entry)| (service, entry);
        entries.into_iter().map(pair).collect()
    }

    /// Calls `visit` with each job that is in the store only, and with a function that returns its summary.
    pub(crate) fn visit_stored(&self, mut visit: impl FnMut(JobHead<'_>, &dyn Fn() -> JobSummary)) {
        self.with(|inner| {
            for (key, waiting) in &inner.jobs {
                if let Place::Store(stored) = &waiting.place {
                    visit(stored.head(key), &|| stored.summary(key));
                }
            }
        });
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
    fn insert(&mut self, key: JobKey, waiting: WaitingJob) {
        let accounts = self.counts.entry(waiting.queue_name().clone()).or_default();
        *accounts.entry(key.0.clone()).or_default() += 1;
        self.jobs.insert(key, Box::new(waiting));
    }

    fn stored(&mut self, key: &JobKey) -> Option<&mut StoredJob> {
        match &mut self.jobs.get_mut(key)?.place {
            Place::Store(stored) => Some(stored),
            Place::Memory(_) => None,
        }
    }

    fn waits(&self, job: &Job) -> bool {
        let key = key_of(job);
        let is_this = |waiting: &WaitingJob| match &waiting.place {
            Place::Memory(resident) => resident.prepared.job.is(job),
            Place::Store(stored) => {
                !stored.is_taken && self.handles.get(&key).is_some_and(|known| known.is(job))
            }
        };
        self.jobs.get(&key).is_some_and(|waiting| is_this(waiting))
    }

    fn is_from_previous_run(&self, key: &JobKey, queue: &QueueName) -> bool {
        self.jobs.get(key).is_some_and(|waiting| {
            waiting.queue_name() == queue
                && matches!(&waiting.place, Place::Store(stored) if stored.is_from_previous_run)
        })
    }

    fn take(&mut self, key: &JobKey) -> Option<TakenJob> {
        let waiting = self.jobs.get_mut(key)?;
        let service = waiting.service.clone();
        let (resident, began_at) = match &mut waiting.place {
            Place::Store(stored) if stored.is_taken => return None,
            Place::Store(stored) => {
                stored.is_taken = true;
                (None, stored.began_at())
            }
            Place::Memory(_) => match self.jobs.remove(key)?.place {
                Place::Memory(resident) => (Some(resident), None),
                Place::Store(_) => return None,
            },
        };
        self.uncount(&service.model.queue_name, &key.0);
        Some(TakenJob {
            service,
            key: key.clone(),
            resident,
            began_at,
        })
    }

    fn uncount(&mut self, queue: &QueueName, account: &Account) {
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
    }

    fn shared_target(&mut self, target: Arc<Target>) -> Arc<Target> {
        if let Some(known) = self.targets.get(&target) {
            return Arc::clone(known);
        }
        // Targets of ended jobs; a server has few.
        self.targets.retain(|target| Arc::strong_count(target) > 1);
        self.targets.insert(Arc::clone(&target));
        target
    }
}

pub(crate) fn key_of(job: &Job) -> JobKey {
    (job.account().clone(), job.id().clone())
}
