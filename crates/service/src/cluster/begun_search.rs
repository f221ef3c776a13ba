//! Finds the jobs of a model that directors begin, for those who follow its logs. The store is asked at intervals:
//! any process of the cluster may have granted the leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::leases::{JobProgress, JobRef};
use tidegate_core::store::StoreError;
use tokio::sync::mpsc;

use super::Cluster;
use crate::begun_jobs::BegunJob;
use crate::job::Job;
use crate::job_service::JobService;

/// The time between two searches.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How late a lease may become visible: a store commits changes some time after it was asked.
const LATE: Duration = Duration::from_secs(5);
/// The most new jobs of one search. Only a follower that was very slow has more.
const MAX_NEW: usize = 10_000;
/// How often the store is asked for one job. A job that cannot be read after that time is missed, so that it
/// does not hold up the others.
const READ_ATTEMPTS: usize = 20;
/// How many jobs are read at the same time.
const MAX_CONCURRENT_READS: usize = 16;

/// Searches for one follower.
pub(crate) struct BegunSearch {
    service: JobService,
    cluster: Cluster,
    /// The attempts that were found, and when they began.
    known: HashMap<(JobRef, u32), Timestamp>,
    /// What began earlier was found.
    since: Timestamp,
}

impl BegunSearch {
    /// A search for jobs that begin from now on, and the jobs that run now or have just begun.
    pub(crate) async fn begin(
        service: &JobService,
        cluster: &Cluster,
    ) -> Result<(Vec<Arc<Job>>, Self), StoreError> {
        let model = &service.target().model;
        let leases = &cluster.leases;
        let running = leases.begun(model, None).await?;
        let (at, since) = (running.at, running.at - LATE);
        let mut search = Self {
            service: service.clone(),
            cluster: cluster.clone(),
            known: HashMap::new(),
            since,
        };
        // What has ended before is known, so that it is not taken for new.
        let begun = leases.begun(model, Some(since)).await?.jobs;
        let is_over = |job: &JobProgress| job.status.is_terminal() && job.started_at < Some(at);
        let (over, open): (Vec<_>, Vec<_>) = begun.into_iter().partition(is_over);
        // First, so that a job that ran then counts as running although it has ended since.
        let open = search.new_ones(running.jobs.into_iter().chain(open));
        search.new_ones(over);
        let found: Vec<BegunJob> = search.read(open).collect().await;
        let jobs = found.into_iter().filter_map(|found| match found {
            BegunJob::Job(job) => Some(job),
            BegunJob::Missed(_) => None,
        });
        Ok((jobs.collect(), search))
    }

    /// Searches until nothing receives any more.
    pub(crate) async fn run(mut self, sender: mpsc::Sender<BegunJob>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut new = match self.look().await {
                Ok(new) => new,
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "failed to look for jobs that have begun, retrying");
                    continue;
                }
            };
            // They wait here, and not in memory, while the receiver is busy.
            let missed = new.len().saturating_sub(MAX_NEW);
            if missed > 0 {
                drop(new.drain(..missed));
                let count = u64::try_from(missed).unwrap_or(u64::MAX);
                if sender.send(BegunJob::Missed(count)).await.is_err() {
                    return;
                }
            }
            let mut jobs = self.read(new);
            while let Some(found) = jobs.next().await {
                if sender.send(found).await.is_err() {
                    return;
                }
            }
        }
    }

    /// The jobs that have begun since the last time, oldest first.
    async fn look(&mut self) -> Result<Vec<JobRef>, StoreError> {
        let model = &self.service.target().model;
        let leases = &self.cluster.leases;
        let found = leases.begun(model, Some(self.since)).await?;
        let new = self.new_ones(found.jobs);
        self.since = self.since.max(found.at - LATE);
        self.known.retain(|_, began| *began >= self.since);
        Ok(new)
    }

    fn new_ones(&mut self, found: impl IntoIterator<Item = JobProgress>) -> Vec<JobRef> {
        let mut new = Vec::new();
        for JobProgress {
            job,
            attempt,
            started_at,
            ..
        } in found
        {
            let began = started_at.unwrap_or(Timestamp::MIN);
            let is_new = self.known.insert((job.clone(), attempt), began).is_none();
            if is_new {
                new.push((began, job));
            }
        }
        new.sort_by_key(|(began, _)| *began);
        new.into_iter().map(|(_, job)| job).collect()
    }

    /// The handles of these jobs, in their order. Those that were removed meanwhile are left out.
    fn read(&self, jobs: Vec<JobRef>) -> impl futures_util::Stream<Item = BegunJob> + Unpin + '_ {
        let reads = stream::iter(jobs).map(|job| self.read_one(job));
        let found = reads.buffered(MAX_CONCURRENT_READS);
        Box::pin(found.filter_map(std::future::ready))
    }

    async fn read_one(&self, job: JobRef) -> Option<BegunJob> {
        for _ in 0..READ_ATTEMPTS {
            match self.service.find(&job.account, &job.id).await {
                Ok(found) => return found.map(BegunJob::Job),
                // The store says why in the log.
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
        Some(BegunJob::Missed(1))
    }
}
