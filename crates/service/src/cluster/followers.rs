//! Handles to jobs that directors run. A handle shows the recorded status of its job and what the live
//! events add to it. While a client waits for a job, one task of this process keeps its handle up to date:
//! it is woken by the live events, and asks the store at intervals, because wake-ups may be lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidegate_core::leases::JobRef;
use tidegate_core::live::{LiveEvent, LivePosition, WakeReason};
use tidegate_core::record::JobRecord;
use tidegate_core::{Status, chain};
use tokio::sync::mpsc;

use super::Cluster;
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
        job.show_status(&record);
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
            let batch = match cluster.live.read(key, *position).await {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(job = %key.id, %error, "failed to read live events");
                    return;
                }
            };
            if batch.attempt != position.attempt && position.attempt != 0 {
                job.restart();
            }
            // Events before the batch may be missing: only the last ones are kept.
            *position = LivePosition {
                attempt: batch.attempt,
                offset: batch.offset,
            };
            for event in batch.events {
                position.offset += 1;
                apply(job, event);
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
                job.adopt_end(record);
                true
            }
            Ok(Some(record)) => {
                job.show_status(&record);
                false
            }
            // It was removed when its retention period had passed.
            Ok(None) => true,
            Err(error) => {
                tracing::warn!(job = %key.id, error = %chain(&error), "failed to read job that a client waits for, retrying");
                false
            }
        }
    }

    /// Keeps the handles up to date that clients wait for, until the server shuts down.
    pub(crate) async fn run_followers(self, cluster: Cluster) {
        let followers = &self.shared().followers;
        let receiver = followers
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut waited_for = receiver.expect("one task of the server follows jobs");
        let mut followed = FollowedJobs::default();
        let mut reads = FuturesUnordered::new();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while reads.len() < MAX_CONCURRENT_READS
                && let Some((key, reason)) = followed.next_read()
            {
                reads.push(self.read(&cluster, key, reason));
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
                _ = poll.tick() => followed.wake_all(),
                () = self.shared().closing.cancelled() => return,
            }
        }
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

/// The jobs that clients wait for.
#[derive(Default)]
struct FollowedJobs {
    jobs: BTreeMap<JobRef, Followed>,
    /// The jobs that must be read and are not being read.
    due: VecDeque<JobRef>,
}

/// A job that a client waits for.
#[derive(Default)]
struct Followed {
    /// Why it must be read.
    due: Option<WakeReason>,
    is_read: bool,
}

impl FollowedJobs {
    /// Adds a job. It may have ended before it was subscribed to.
    fn add(&mut self, key: JobRef) {
        self.jobs.entry(key.clone()).or_default();
        self.wake(&key, WakeReason::Ended);
    }

    fn wake(&mut self, key: &JobRef, reason: WakeReason) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        if job.due.is_none() && !job.is_read {
            self.due.push_back(key.clone());
        }
        // Who reads the record reads the events too.
        if job.due != Some(WakeReason::Ended) {
            job.due = Some(reason);
        }
    }

    fn wake_all(&mut self) {
        let keys: Vec<JobRef> = self.jobs.keys().cloned().collect();
        for key in &keys {
            self.wake(key, WakeReason::Ended);
        }
    }

    fn next_read(&mut self) -> Option<(JobRef, WakeReason)> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(job) = self.jobs.get_mut(&key)
                && let Some(reason) = job.due.take()
            {
                job.is_read = true;
                return Some((key, reason));
            }
        }
    }

    /// A job was read. Returns whether it is not followed any more.
    fn was_read(&mut self, key: &JobRef, ended: bool) -> bool {
        if ended {
            return self.jobs.remove(key).is_some();
        }
        if let Some(job) = self.jobs.get_mut(key) {
            job.is_read = false;
            if job.due.is_some() {
                self.due.push_back(key.clone());
            }
        }
        false
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
    /// Shows the status of an open record.
    fn show_status(&self, record: &JobRecord) {
        if record.status == Status::Processing
            && let Some(at) = record.started_at
        {
            self.show_started(at);
        }
    }
}
