//! Announces the jobs that begin to those who follow the logs of models: those that this process runs, and in a
//! cluster those that the store finds ([`BegunSearch`]).
//!
//! A job costs one atomic load while nothing follows. A follower that is too slow misses jobs and gets their
//! number; it never delays a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::Status;
use tidegate_core::store::{JobFilter, StoreError};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::begun_search::BegunSearch;
use crate::job::Job;
use crate::job_service::JobService;

/// How many jobs wait for a follower that is busy. They are kept in memory so long.
const MAX_WAITING: usize = 4096;
/// How many jobs of a cluster do. The others wait in the store.
const MAX_FOUND: usize = 64;

/// Announces jobs.
pub(crate) struct BegunJobs {
    sender: broadcast::Sender<Arc<Job>>,
    followers: Arc<AtomicUsize>,
}

impl Default for BegunJobs {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(MAX_WAITING),
            followers: Arc::default(),
        }
    }
}

impl BegunJobs {
    /// Announces a job that has just begun.
    pub(crate) fn announce(&self, job: &Arc<Job>) {
        if self.followers.load(Ordering::SeqCst) > 0 {
            // Fails if the last follower has just left.
            self.sender.send(Arc::clone(job)).ok();
        }
    }

    fn follow(&self) -> BegunJobsFollower {
        let receiver = self.sender.subscribe();
        self.followers.fetch_add(1, Ordering::SeqCst);
        BegunJobsFollower(Source::Announced {
            receiver,
            _follower: CountedFollower(Arc::clone(&self.followers)),
        })
    }
}

/// Receives the jobs that begin, of one model or of all.
pub struct BegunJobsFollower(Source);

enum Source {
    /// This process runs the jobs of all models.
    Announced {
        receiver: broadcast::Receiver<Arc<Job>>,
        _follower: CountedFollower,
    },
    /// A task of this process finds those of one model in the store.
    Found {
        receiver: mpsc::Receiver<BegunJob>,
        _search: DropGuard,
    },
}

/// Counts a follower while it exists.
struct CountedFollower(Arc<AtomicUsize>);

/// A job that begins, or jobs that a slow follower has missed.
pub enum BegunJob {
    /// A job that has begun.
    Job(Arc<Job>),
    /// So many jobs that are not known any more.
    Missed(u64),
}

impl BegunJobsFollower {
    /// The next job. Cancel-safe. `None` when the server has stopped.
    pub async fn next(&mut self) -> Option<BegunJob> {
        match &mut self.0 {
            Source::Announced { receiver, .. } => match receiver.recv().await {
                Ok(job) => Some(BegunJob::Job(job)),
                Err(RecvError::Lagged(count)) => Some(BegunJob::Missed(count)),
                Err(RecvError::Closed) => None,
            },
            Source::Found { receiver, .. } => receiver.recv().await,
        }
    }

    /// A job that has begun already, without waiting for one.
    pub fn try_next(&mut self) -> Option<BegunJob> {
        match &mut self.0 {
            Source::Announced { receiver, .. } => match receiver.try_recv() {
                Ok(job) => Some(BegunJob::Job(job)),
                Err(TryRecvError::Lagged(count)) => Some(BegunJob::Missed(count)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            },
            Source::Found { receiver, .. } => receiver.try_recv().ok(),
        }
    }
}

impl Drop for CountedFollower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl JobService {
    /// The matching jobs of this model that run now, and a follower of those that begin from now on, which has
    /// jobs of other models as well: every job is in one of them. `None` for an endpoint whose jobs begin in
    /// another process of the cluster.
    pub async fn follow_begun(
        &self,
        filter: &JobFilter,
    ) -> Result<Option<(Vec<Arc<Job>>, BegunJobsFollower)>, StoreError> {
        let Some(cluster) = self.cluster() else {
            return Ok(Some(self.follow_own(filter)));
        };
        if self.target().is_endpoint() {
            return Ok(None);
        }
        let (mut running, search) = BegunSearch::begin(self, cluster).await?;
        running.retain(|job| filter.matches(job.head()));
        let (sender, receiver) = mpsc::channel(MAX_FOUND);
        let stop: CancellationToken = self.shared().closing.child_token();
        let search = search.run(sender);
        let stopped = stop.clone();
        self.spawn_tracked(async move {
            stopped.run_until_cancelled(search).await;
        });
        let follower = BegunJobsFollower(Source::Found {
            receiver,
            _search: stop.drop_guard(),
        });
        Ok(Some((running, follower)))
    }

    fn follow_own(&self, filter: &JobFilter) -> (Vec<Arc<Job>>, BegunJobsFollower) {
        let shared = self.shared();
        // In this order: a job that begins in between is in both.
        let follower = shared.begun_jobs.follow();
        let mut running = Vec::new();
        shared.registry.visit(|job| {
            if job.status() == Status::Processing && filter.matches(job.head()) {
                running.push(Arc::clone(job));
            }
        });
        (running, follower)
    }
}
