//! Handles to jobs that directors run. A handle shows the recorded status of its job and what the live
//! events add to it. While a client waits for a job, one task of this process keeps its handle up to date:
//! it is woken by the live events, and asks the store at intervals, because wake-ups may be lost. One query
//! asks for all jobs that clients wait for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tidegate_core::leases::{JobProgress, JobRef};
use tidegate_core::live::{LiveEvent, LivePosition, WakeReason};
use tidegate_core::record::JobRecord;
use tidegate_core::store::StoreError;
use tidegate_core::{Status, chain};
use tokio::sync::mpsc;

use super::Cluster;
use super::followed_jobs::FollowedJobs;
use super::hints::HINT_TIMEOUT;
use crate::job::{Job, WeakJob};
use crate::job_service::JobService;

/// How often the store is asked for the jobs that clients wait for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How many jobs are read at the same time.
const MAX_CONCURRENT_READS: usize = 32;
/// The number of handles from which unused ones are removed.
const MIN_PURGE: usize = 64;

/// The handles of this process to jobs that directors run.
pub(crate) struct Followers {
    jobs: Mutex<HandleMap>,
    /// Jobs that a client has begun to wait for.
    waited_for: mpsc::UnboundedSender<JobRef>,
    receiver: Mutex<Option<mpsc::UnboundedReceiver<JobRef>>>,
    /// Whether the progress of the jobs could not be read.
    is_failing: AtomicBool,
}

#[derive(Default)]
struct HandleMap {
    handles: HashMap<JobRef, Handle>,
    /// The number of handles at which the next purge is due.
    purge_at: usize,
}

#[derive(Clone)]
struct Handle {
    job: Arc<WeakJob>,
    /// How much of the live events the handle shows. A task that changes the handle has the lock.
    position: Arc<tokio::sync::Mutex<LivePosition>>,
}

/// Tells the task that keeps handles up to date that a client waits for a job.
pub(crate) struct FollowRequest {
    job: JobRef,
    waited_for: mpsc::UnboundedSender<JobRef>,
}

impl FollowRequest {
    /// Starts to follow the job.
    pub(crate) fn send(self) {
        // Without a receiver the server shuts down.
        self.waited_for.send(self.job).ok();
    }
}

impl Default for Followers {
    fn default() -> Self {
        let (waited_for, receiver) = mpsc::unbounded_channel();
        Self {
            jobs: Mutex::default(),
            waited_for,
            receiver: Mutex::new(Some(receiver)),
            is_failing: AtomicBool::new(false),
        }
    }
}

impl Followers {
    fn get_or_create(&self, key: &JobRef, create: impl FnOnce() -> Job) -> (Arc<Job>, Handle) {
        let mut map = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = map.handles.get(key)
            && let Some(job) = handle.job.upgrade()
        {
            return (Arc::new(job), handle.clone());
        }
        if map.handles.len() >= map.purge_at.max(MIN_PURGE) {
            map.handles.retain(|_, handle| handle.job.is_alive());
            map.purge_at = 2 * map.handles.len();
        }
        let job = Arc::new(create());
        job.follow_on_wait(FollowRequest {
            job: key.clone(),
            waited_for: self.waited_for.clone(),
        });
        let handle = Handle {
            job: Arc::new(job.downgrade()),
            position: Arc::default(),
        };
        map.handles.insert(key.clone(), handle.clone());
        (job, handle)
    }

    fn get(&self, key: &JobRef) -> Option<(Arc<Job>, Handle)> {
        let map = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = map.handles.get(key)?;
        Some((Arc::new(handle.job.upgrade()?), handle.clone()))
    }

    /// The store did not answer; one line says so, until it does.
    fn check_failed(&self, error: &StoreError) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(error = %chain(error), "failed to read the jobs that clients wait for, retrying");
        }
    }

    fn check_succeeded(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the jobs that clients wait for can be read again");
        }
    }

    fn remove(&self, key: &JobRef) {
        let mut map = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        map.handles.remove(key);
    }
}

impl JobService {
    /// The handle of an open job, as its record and the live events show it now.
    pub(crate) async fn follow_record(&self, cluster: &Cluster, record: JobRecord) -> Arc<Job> {
        let key = JobRef::from(&record.spec);
        let create = || self.job_of_spec(&record.spec);
        let (job, handle) = self.shared().followers.get_or_create(&key, create);
        job.show_progress(record.status, record.attempt, record.started_at);
        self.read_events(cluster, &key, &job, &handle).await;
        match job.input() {
            Some(_) => job,
            None => Arc::new(job.with_input(record.spec.input)),
        }
    }

    /// Makes a job that was just accepted one that can be followed.
    pub(crate) fn follow_new(&self, key: &JobRef, job: &Arc<Job>) -> Arc<Job> {
        let clone = || match job.input() {
            Some(input) => job.with_input(input.clone()),
            None => job.without_input(),
        };
        self.shared().followers.get_or_create(key, clone).0
    }

    /// Shows the live events that the handle does not show yet.
    async fn read_events(&self, cluster: &Cluster, key: &JobRef, job: &Job, handle: &Handle) {
        let mut position = handle.position.lock().await;
        loop {
            let read = cluster.live.read(key, *position);
            let batch = match tokio::time::timeout(HINT_TIMEOUT, read).await {
                Ok(Ok(Some(batch))) => batch,
                Ok(Ok(None)) => return,
                Ok(Err(error)) => {
                    tracing::debug!(job = %key.id, %error, "failed to read live events");
                    return;
                }
                Err(_) => {
                    tracing::debug!(job = %key.id, "failed to read live events in time");
                    return;
                }
            };
            let is_shown = job.show_attempt(batch.attempt);
            // Events before the batch may be missing: only the last ones are kept.
            *position = LivePosition {
                attempt: batch.attempt,
                offset: batch.offset,
            };
            for event in batch.events {
                position.offset += 1;
                if is_shown {
                    apply(job, event);
                }
            }
        }
    }

    /// Reads the record of a followed job. Returns whether the job has ended.
    async fn read_record(&self, cluster: &Cluster, key: &JobRef) -> bool {
        let Some((job, handle)) = self.shared().followers.get(key) else {
            return true;
        };
        self.read_events(cluster, key, &job, &handle).await;
        let record = match self.store() {
            Some(store) => store.get(&key.account, &key.id).await,
            None => Ok(None),
        };
        match record {
            Ok(Some(record)) if record.status.is_terminal() => {
                if job.show_attempt(record.attempt) {
                    job.show_rest(&record);
                }
                job.adopt_end(record);
                true
            }
            Ok(Some(record)) => {
                job.show_progress(record.status, record.attempt, record.started_at);
                false
            }
            // It was removed when its retention period had passed.
            Ok(None) => {
                job.show_removed();
                true
            }
            Err(error) => {
                tracing::warn!(job = %key.id, error = %chain(&error), "failed to read job that a client waits for, retrying");
                false
            }
        }
    }

    /// Keeps the handles up to date that clients wait for, until the server has shut down.
    pub(crate) async fn run_followers(self, cluster: Cluster) {
        let followers = &self.shared().followers;
        let receiver = followers
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut waited_for = receiver.expect("one task of the server follows jobs");
        let mut followed = FollowedJobs::default();
        let (mut reads, mut checks) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while reads.len() < MAX_CONCURRENT_READS
                && let Some((key, reason)) = followed.next_read()
            {
                reads.push(self.read(&cluster, key, reason));
            }
            if checks.is_empty() {
                let unchecked = followed.take_unchecked();
                if !unchecked.is_empty() {
                    checks.push(self.check_progress(&cluster, unchecked));
                }
            }
            tokio::select! {
                Some(key) = waited_for.recv() => {
                    if let Err(error) = cluster.live.subscribe(&key).await {
                        tracing::debug!(job = %key.id, %error, "failed to subscribe to job");
                    }
                    followed.add(key);
                }
                (key, reason) = cluster.live.next_wake() => followed.wake(&key, reason),
                Some((key, ended)) = reads.next(), if !reads.is_empty() => {
                    if followed.was_read(&key, ended) {
                        followers.remove(&key);
                        cluster.live.unsubscribe(&key).await.ok();
                    }
                }
                Some(wakes) = checks.next(), if !checks.is_empty() => {
                    for (key, reason) in wakes {
                        followed.wake(&key, reason);
                    }
                }
                _ = poll.tick() => followed.check_all(),
                () = self.shared().unfollowed.cancelled() => return,
            }
        }
    }

    /// Shows the progress of jobs; returns what must be read of each.
    async fn check_progress(
        &self,
        cluster: &Cluster,
        keys: Vec<JobRef>,
    ) -> Vec<(JobRef, WakeReason)> {
        let mut found: HashMap<JobRef, JobProgress> = match cluster.leases.progress(&keys).await {
            Ok(found) => found
                .into_iter()
                .map(|progress| (progress.job.clone(), progress))
                .collect(),
            Err(error) => {
                self.shared().followers.check_failed(&error);
                // The events may still arrive.
                let keys = keys.into_iter();
                return keys.map(|key| (key, WakeReason::Events)).collect();
            }
        };
        self.shared().followers.check_succeeded();
        let mut wakes = Vec::with_capacity(keys.len());
        for key in keys {
            let reason = match found.remove(&key) {
                Some(progress) if !progress.status.is_terminal() => {
                    if let Some((job, _)) = self.shared().followers.get(&key) {
                        let JobProgress {
                            status,
                            attempt,
                            started_at,
                            ..
                        } = progress;
                        job.show_progress(status, attempt, started_at);
                    }
                    WakeReason::Events
                }
                // It has ended, or was removed.
                Some(_) | None => WakeReason::Ended,
            };
            wakes.push((key, reason));
        }
        wakes
    }

    async fn read(&self, cluster: &Cluster, key: JobRef, reason: WakeReason) -> (JobRef, bool) {
        let ended = match reason {
            WakeReason::Ended => self.read_record(cluster, &key).await,
            WakeReason::Events => match self.shared().followers.get(&key) {
                Some((job, handle)) => {
                    self.read_events(cluster, &key, &job, &handle).await;
                    false
                }
                // No client waits any more.
                None => true,
            },
        };
        (key, ended)
    }
}

fn apply(job: &Job, event: LiveEvent) {
    match event {
        LiveEvent::Started { at } => job.show_started(at),
        LiveEvent::Log { source, text } => drop(job.log(source, &text)),
        // The director enforces the limit of the output.
        LiveEvent::Output { json, returned } => {
            let added = if returned {
                job.returned(json)
            } else {
                job.output(json)
            };
            added.ok();
        }
        LiveEvent::Metric(metric) => job.metric(metric),
    }
}

impl Job {
    /// Shows what the record of an open job says.
    fn show_progress(&self, status: Status, attempt: u32, started_at: Option<Timestamp>) {
        if status == Status::Processing
            && self.show_attempt(attempt)
            && let Some(at) = started_at
        {
            self.show_started(at);
        }
    }
}
