//! Announces the jobs that begin in this process to those who follow the logs of its models.
//!
//! A job costs one atomic load while nothing follows. A follower that is too slow misses jobs and gets their
//! number; it never delays a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_core::Status;
use tidegate_core::store::JobFilter;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::job::Job;
use crate::job_service::JobService;

/// How many jobs wait for a follower that is busy. They are kept in memory so long.
const MAX_WAITING: usize = 4096;

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
        BegunJobsFollower {
            receiver,
            followers: Arc::clone(&self.followers),
        }
    }
}

/// Receives the jobs of all models that begin.
pub struct BegunJobsFollower {
    receiver: broadcast::Receiver<Arc<Job>>,
    followers: Arc<AtomicUsize>,
}

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
        match self.receiver.recv().await {
            Ok(job) => Some(BegunJob::Job(job)),
            Err(RecvError::Lagged(count)) => Some(BegunJob::Missed(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// A job that has begun already, without waiting for one.
    pub fn try_next(&mut self) -> Option<BegunJob> {
        match self.receiver.try_recv() {
            Ok(job) => Some(BegunJob::Job(job)),
            Err(broadcast::error::TryRecvError::Lagged(count)) => Some(BegunJob::Missed(count)),
            Err(_) => None,
        }
    }
}

impl Drop for BegunJobsFollower {
    fn drop(&mut self) {
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl JobService {
    /// The matching jobs that run now, and a follower of the jobs of all models that begin from now on: every
    /// job is in one of them. `None` if directors run the jobs, so that they begin elsewhere.
    pub fn follow_begun(&self, filter: &JobFilter) -> Option<(Vec<Arc<Job>>, BegunJobsFollower)> {
        if self.cluster().is_some() {
            return None;
        }
        let shared = self.shared();
        // In this order: a job that begins in between is in both.
        let follower = shared.begun_jobs.follow();
        let mut running = Vec::new();
        shared.registry.visit(|job| {
            if job.status() == Status::Processing && filter.matches(job.head()) {
                running.push(Arc::clone(job));
            }
        });
        Some((running, follower))
    }
}
