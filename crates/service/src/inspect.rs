//! Read access for operators and APIs: metrics, the queue, the model's processes, and lookups of
//! jobs. Nothing here changes a job.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::health::HealthReport;
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::record::{Api, JobSummary};
use tidegate_core::retry_after::{ModelLoad, retry_after};
use tidegate_core::store::{JobFilter, JobHead, StoreError};
use tidegate_core::{Account, JobId, Refusal, Status};

use crate::job::Job;
use crate::job_service::JobService;
use crate::metrics::JobMetrics;

/// The jobs of one model that have not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// The jobs of all accounts.
    pub total: QueueCounts,
    /// The jobs by account; accounts without jobs are absent.
    pub accounts: BTreeMap<Account, QueueCounts>,
}

/// The number of jobs that have not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The number of jobs that wait for a slot.
    pub waiting: usize,
    /// The number of jobs that have a slot.
    pub running: usize,
    /// When the oldest waiting job was accepted.
    pub oldest_waiting_since: Option<Timestamp>,
}

impl JobService {
    /// The metrics of this model.
    pub fn metrics(&self) -> &JobMetrics {
        &self.model.metrics
    }

    /// Counts a request that an API refused before it called `submit`.
    pub fn count_refusal(&self, api: Api, refusal: &Refusal) {
        self.model.metrics.refused(api, refusal);
    }

    /// The status of the pool that runs the jobs.
    pub fn pool_status(&self) -> PoolStatus {
        self.model.executor.pool_status()
    }

    /// The health of the model, without running its own health check.
    pub fn report(&self) -> HealthReport {
        self.model.executor.report()
    }

    /// Counts the webhooks of all models that wait for another attempt in the store, for
    /// [`Self::pending_webhook_retries`].
    pub async fn count_webhook_retries(&self) {
        if let Some(outbox) = &self.model.senders.outbox {
            outbox.count_retries().await;
        }
    }

    /// The number of webhooks that wait for another attempt: those in memory, and those that the
    /// store had at the last count.
    pub fn pending_webhook_retries(&self) -> usize {
        let senders = &self.model.senders;
        let model = &self.model.target.model;
        let stored = senders.outbox.as_ref().map(|outbox| outbox.retrying(model));
        senders.retry_buffer.len() + stored.unwrap_or_default()
    }

    /// The number of waiting and running jobs of this model. Takes the same time however many they are.
    pub fn queue(&self) -> QueueStatus {
        self.model.metrics.open_jobs.status()
    }

    /// How long a refused client should wait: until a slot would have been free, if its job had been queued.
    pub fn retry_after(&self) -> Duration {
        let QueueCounts {
            waiting, running, ..
        } = self.queue().total;
        retry_after(ModelLoad {
            service_time: self.model.metrics.recent_run_time.get(),
            ahead: waiting,
            // A model that refuses a job has one in every slot.
            permits: u32::try_from(running).unwrap_or(u32::MAX),
        })
    }

    /// The matching jobs in memory: all that have not ended, and some that have.
    pub fn list_in_memory(&self, filter: &JobFilter) -> Vec<JobSummary> {
        self.select_in_memory(usize::MAX, |job| filter.matches(job).then_some(()))
    }

    /// The `limit` jobs in memory with the lowest positions, and possibly more, in any order. Those without a
    /// position are left out. Few others are copied, however many jobs wait.
    pub fn select_in_memory<P: Ord>(
        &self,
        limit: usize,
        position: impl Fn(JobHead<'_>) -> Option<P>,
    ) -> Vec<JobSummary> {
        let shared = self.shared();
        let mut registered = LowestJobs::new(limit);
        shared.registry.visit(|job| {
            registered.add(position(job.head()), || job.summary());
        });
        let registered = registered.into_jobs();
        // A job that starts may be in both, so that some of these are left out below.
        let mut stored = LowestJobs::new(limit.saturating_add(MAX_STARTING));
        let visit = |job: JobHead<'_>, summary: &dyn Fn() -> JobSummary| {
            stored.add(position(job), summary);
        };
        shared.waiting_jobs.visit_stored(visit);
        let mut stored = stored.into_jobs();
        let keys: HashSet<(&Account, &JobId)> = registered
            .iter()
            .map(|job| (&job.account, &job.id))
            .collect();
        stored.retain(|job| !keys.contains(&(&job.account, &job.id)));
        stored.extend(registered);
        stored
    }

    /// Whether a job is in memory, so that its record in the store may be outdated.
    pub fn is_in_memory(&self, account: &Account, id: &JobId) -> bool {
        let shared = self.shared();
        shared.registry.get(account, id).is_some()
            || shared.waiting_jobs.has(&(account.clone(), id.clone()))
    }

    /// The matching jobs in the store, newest first. All models of a server share one store.
    pub async fn list_recorded(&self, filter: &JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        match self.store() {
            Some(store) => store.recent(filter.clone()).await,
            None => Ok(Vec::new()),
        }
    }

    /// A job in memory, ended or not. Its input may be only in the store; so may be all of a waiting job
    /// that no client follows, which is not found.
    pub fn get_in_memory(&self, account: &Account, id: &JobId) -> Option<Arc<Job>> {
        let shared = self.shared();
        let known = || {
            shared
                .waiting_jobs
                .known_handle(&(account.clone(), id.clone()))
        };
        shared.registry.get(account, id).or_else(known)
    }

    /// Whether a job waits, in memory or in the store.
    pub fn is_waiting(&self, account: &Account, id: &JobId) -> bool {
        let shared = self.shared();
        match shared.registry.get(account, id) {
            Some(job) => job.status() == Status::Queued,
            None => shared.waiting_jobs.has(&(account.clone(), id.clone())),
        }
    }

    /// Whether an account has an unfinished job with this id at this model. Looks at all unfinished
    /// jobs.
    pub fn has_open_job(&self, id: &JobId) -> bool {
        let shared = self.shared();
        // In this order: a job that starts moves from the waiting jobs to the registry.
        shared.waiting_jobs.has_id(&self.model.queue_name, id)
            || shared
                .registry
                .running()
                .iter()
                .any(|job| job.id() == id && job.target().model == self.target().model)
    }

    /// A job in memory or in the store, ended or not.
    pub async fn find(&self, account: &Account, id: &JobId) -> Result<Option<Arc<Job>>, Refusal> {
        if let Some(job) = self.shared().registry.get(account, id) {
            return Ok(Some(self.with_input(job).await));
        }
        Ok(match self.record_of(account, id).await? {
            Some(record) => Some(self.job_of_record(record).await),
            None => None,
        })
    }
}

/// How many jobs may be about to start: in the registry already, and still among the waiting ones.
const MAX_STARTING: usize = 100;

/// The jobs with the lowest positions among those that are added.
struct LowestJobs<P> {
    limit: usize,
    /// The highest position is on top.
    jobs: BinaryHeap<PositionedJob<P>>,
}

struct PositionedJob<P> {
    position: P,
    job: JobSummary,
}

impl<P: Ord> LowestJobs<P> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            jobs: BinaryHeap::new(),
        }
    }

    fn add(&mut self, position: Option<P>, summary: impl FnOnce() -> JobSummary) {
        let Some(position) = position else { return };
        if self.jobs.len() >= self.limit {
            match self.jobs.peek() {
                Some(highest) if position < highest.position => drop(self.jobs.pop()),
                _ => return,
            }
        }
        let job = summary();
        self.jobs.push(PositionedJob { position, job });
    }

    fn into_jobs(self) -> Vec<JobSummary> {
        self.jobs.into_iter().map(|entry| entry.job).collect()
    }
}

impl<P: Ord> Ord for PositionedJob<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position.cmp(&other.position)
    }
}

impl<P: Ord> PartialOrd for PositionedJob<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for PositionedJob<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P: Ord> Eq for PositionedJob<P> {}
