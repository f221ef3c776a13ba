//! The state of a [`RemoteExecutor`](crate::RemoteExecutor) behind its lock: the queue, the started
//! jobs with their assignments, and the workers. `heartbeat.rs` evaluates the workers' pings.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tidegate_core::fair_queue::{FairQueue, HasOwner};
use tidegate_core::remote::RemoteFact;
use tidegate_core::{Account, Event, JobId, Outcome, Work, clock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::admission::WorkerSlot;
use crate::assignment::{AssignmentState, RemoteJob};
use crate::early_results::EarlyResults;
use crate::event_queue::{EndCommit, EventSender, ReportPlace};
use crate::executor::Config;
use crate::heartbeat::REMOVE_AFTER;
use crate::reports::{JobReport, WorkerResult};
use crate::worker::{WorkerActivity, WorkerCounts, WorkerId, WorkerState, WorkerStatus};

/// The most workers that are remembered: a worker chooses its own id.
const MAX_WORKERS: usize = 10_000;

/// A caller that waits for a worker's slot.
pub(crate) struct AdmissionWaiter {
    pub(crate) account: Account,
    pub(crate) slot: oneshot::Sender<WorkerSlot>,
}

impl HasOwner for AdmissionWaiter {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }
}

/// What a report became.
pub(crate) enum AppliedReport {
    /// An event, which every reader sees when the receiver resolves.
    Published(oneshot::Receiver<()>),
    /// The end of the job.
    Ended(EndCommit),
    /// The job had ended before.
    EndedBefore(EndCommit),
    /// It is kept until the job is started.
    Buffered,
    Ignored,
}

#[derive(Default)]
pub(crate) struct DispatchState {
    pub(crate) queue: FairQueue<AdmissionWaiter>,
    /// Started jobs that wait for another worker; they go before the queue.
    redeliveries: VecDeque<JobId>,
    pub(crate) jobs: HashMap<JobId, RemoteJob>,
    pub(crate) workers: HashMap<WorkerId, WorkerState>,
    pub(crate) early_results: EarlyResults,
    /// Jobs that were not started here, with the worker whose ping named them.
    pub(crate) unstarted: HashMap<JobId, (WorkerId, Instant)>,
    /// How many jobs were given to another worker.
    pub(crate) retried: u64,
    pub(crate) closed: bool,
    /// Whether no jobs are handed out until further notice.
    pub(crate) is_handout_paused: bool,
    /// Before this time, no jobs are handed out.
    pub(crate) handout_resumes_at: Option<Instant>,
}

impl DispatchState {
    /// Whether no jobs are handed out now.
    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.is_handout_paused || self.handout_resumes_at.is_some_and(|at| at > now)
    }

    /// The state of a worker, which is added if it is new.
    pub(crate) fn worker(&mut self, id: &WorkerId, now: Instant) -> &mut WorkerState {
        if !self.workers.contains_key(id) && self.workers.len() >= MAX_WORKERS {
            let oldest = self
                .workers
                .iter()
                .min_by_key(|(_, worker)| worker.last_seen())
                .map(|(id, _)| id.clone());
            oldest.map(|id| self.workers.remove(&id));
        }
        self.workers
            .entry(id.clone())
            .or_insert_with(|| WorkerState::new(now))
    }

    pub(crate) fn is_busy(&self, id: &WorkerId) -> bool {
        self.jobs.values().any(|job| {
            job.assignment
                .as_ref()
                .is_some_and(|assignment| assignment.worker == *id)
        })
    }

    /// Whether any job waits for a worker.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.redeliveries.is_empty()
    }

    /// The started jobs that wait for another worker.
    pub(crate) fn awaiting_redelivery(&self) -> Vec<JobId> {
        self.jobs
            .iter()
            .filter(|(_, job)| job.assignment.is_none())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Assigns the next started job without a worker to this one. Returns the job and the number of
    /// the delivery.
    pub(crate) fn next_redelivery(
        &mut self,
        worker: &WorkerId,
        now: Instant,
    ) -> Option<(Work, u32)> {
        loop {
            let id = self.redeliveries.pop_front()?;
            // It may have been canceled, or its first worker may have been late and not lost.
            if let Some(job) = self
                .jobs
                .get_mut(&id)
                .filter(|job| job.assignment.is_none())
            {
                return Some((job.work.clone(), job.offer_to(worker, now)));
            }
        }
    }

    /// Starts a job on a worker and returns the number of the delivery. `None` when another worker
    /// has the job from the previous server process, or has already sent its result.
    pub(crate) fn start(
        &mut self,
        work: &Work,
        events: EventSender,
        worker: &WorkerId,
        config: &Config,
        now: Instant,
    ) -> Option<u32> {
        let mut job = self.open_job(work, events)?;
        let named = self
            .unstarted
            .remove(&work.id)
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_timeout);
        let delivery = match named {
            Some((owner, _)) => {
                job.emit(Event::Remote(RemoteFact::Worker(owner.to_string())));
                job.adopted_by(&owner, Duration::ZERO, now);
                None
            }
            None => Some(job.offer_to(worker, now)),
        };
        self.jobs.insert(work.id.clone(), job);
        delivery
    }

    /// Starts a job that a worker has had from the previous server process for the time `before`. If
    /// its result is already here, the job ends at once.
    pub(crate) fn adopt(
        &mut self,
        work: &Work,
        events: EventSender,
        worker: &WorkerId,
        before: Duration,
        now: Instant,
    ) {
        self.unstarted.remove(&work.id);
        events.emit(Event::Remote(RemoteFact::Worker(worker.to_string())));
        let Some(mut job) = self.open_job(work, events) else {
            return;
        };
        job.adopted_by(worker, before, now);
        self.jobs.insert(work.id.clone(), job);
    }

    /// A job without an assignment. `None` when its result is already here; the job then ends at
    /// once.
    fn open_job(&mut self, work: &Work, events: EventSender) -> Option<RemoteJob> {
        self.early_results.mark_started(&work.id);
        let job = RemoteJob::new(work.clone(), events);
        let Some(result) = self.early_results.take(&work.id) else {
            return Some(job);
        };
        result
            .events(0)
            .into_iter()
            .for_each(|event| job.emit(event));
        self.early_results
            .mark_ended(&work.id, Some(job.events.end_commit()));
        None
    }

    /// A worker received an offered job.
    pub(crate) fn offer_delivered(&mut self, id: &JobId, delivery: u32, now: Instant) {
        let Some(job) = self
            .jobs
            .get_mut(id)
            .filter(|job| job.deliveries == delivery)
        else {
            return;
        };
        let retries = job.deliveries - job.undelivered - 1;
        let Some(assignment) = &mut job.assignment else {
            return;
        };
        assignment.state = AssignmentState::Delivered;
        (assignment.since, assignment.last_report) = (now, now);
        let worker = assignment.worker.to_string();
        job.emit(Event::Remote(RemoteFact::Worker(worker)));
        // The worker that is lost may have got the job from the previous server process.
        if job.deliveries > 1 || job.lost > 0 {
            job.emit(Event::Remote(RemoteFact::Waiting(false)));
        }
        if job.lost > 0 {
            job.emit(Event::Remote(RemoteFact::RetriedAt(clock::now())));
        }
        if retries > 0 {
            job.emit(Event::Remote(RemoteFact::Retries(retries.into())));
        }
    }

    /// An offered job did not reach its worker. Returns whether the job waits again.
    pub(crate) fn offer_undelivered(&mut self, id: &JobId, delivery: u32) -> bool {
        let Some(job) = self
            .jobs
            .get_mut(id)
            .filter(|job| job.deliveries == delivery)
        else {
            return false;
        };
        job.unassign();
        job.undelivered += 1;
        self.redeliveries.push_front(id.clone());
        true
    }

    /// Applies a worker's report about a job.
    pub(crate) fn apply_report(
        &mut self,
        worker: &WorkerId,
        id: &JobId,
        report: JobReport,
        place: Option<ReportPlace>,
        config: &Config,
        now: Instant,
    ) -> AppliedReport {
        let from_assigned = |job: &RemoteJob| {
            job.assignment
                .as_ref()
                .is_some_and(|assignment| assignment.worker == *worker)
        };
        let adopted = |job: &RemoteJob| {
            job.assignment
                .as_ref()
                .is_some_and(|assignment| assignment.state == AssignmentState::Adopted)
        };
        let continues_stream = match &report {
            JobReport::Part(_) => true,
            JobReport::StreamDone(result) => result.is_empty(),
            JobReport::Progress(_) | JobReport::Done(_) => false,
        };
        if continues_stream
            && self
                .jobs
                .get(id)
                .is_some_and(|job| from_assigned(job) && adopted(job))
        {
            self.lose_worker(
                id,
                "the stream parts that it sent before the server restarted are lost",
                config,
                now,
            );
            return AppliedReport::Ignored;
        }
        let result = match report {
            JobReport::Done(result) => Some(result),
            JobReport::StreamDone(result)
                if !result.is_empty() || self.jobs.get(id).is_some_and(from_assigned) =>
            {
                Some(result)
            }
            JobReport::StreamDone(_) => None,
            JobReport::Progress(_) | JobReport::Part(_) => {
                let job = self.jobs.get_mut(id).filter(|job| from_assigned(job));
                let published = job
                    .zip(place)
                    .and_then(|(job, place)| job.interim_report(report, place, now));
                return published.map_or(AppliedReport::Ignored, AppliedReport::Published);
            }
        };
        if !self.jobs.contains_key(id)
            && let Some(commit) = self.early_results.end_commit(id)
        {
            // The worker sends its result again, because the first response did not reach it.
            return AppliedReport::EndedBefore(commit);
        }
        match result {
            Some(result) => self.finish(worker, id, result),
            None => AppliedReport::Ignored,
        }
    }

    /// Ends a job. The first result counts, also when the job was given to another worker meanwhile.
    fn finish(&mut self, worker: &WorkerId, id: &JobId, result: WorkerResult) -> AppliedReport {
        let Some(job) = self.jobs.remove(id) else {
            self.unstarted.remove(id);
            return if self.early_results.insert(id, result) {
                AppliedReport::Buffered
            } else {
                AppliedReport::Ignored
            };
        };
        if job
            .assignment
            .as_ref()
            .is_none_or(|assignment| assignment.worker != *worker)
        {
            job.emit(Event::Remote(RemoteFact::Waiting(false)));
            job.emit(Event::Remote(RemoteFact::Worker(worker.to_string())));
        }
        result
            .events(job.emitted_parts)
            .into_iter()
            .for_each(|event| job.emit(event));
        self.mark_ended(id, &job);
        AppliedReport::Ended(job.events.end_commit())
    }

    pub(crate) fn cancel(&mut self, id: &JobId) {
        self.end(id, vec![Event::Ended(Outcome::Canceled)]);
    }

    /// Tells the worker to stop a canceled job that was not started here, which it has from the
    /// previous server process.
    pub(crate) fn stop_unstarted(&mut self, id: &JobId) {
        let Some((worker, _)) = self.unstarted.remove(id) else {
            return;
        };
        self.early_results.mark_ended(id, None);
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.stops.insert(id.clone());
            worker.stops_changed.notify_waiters();
        }
    }

    /// Ends a job regardless of its worker, and tells the worker to stop it.
    fn end(&mut self, id: &JobId, events: Vec<Event>) {
        let Some(job) = self.jobs.remove(id) else {
            return;
        };
        events.into_iter().for_each(|event| job.emit(event));
        if let Some(worker) = job
            .assignment
            .as_ref()
            .and_then(|assignment| self.workers.get_mut(&assignment.worker))
        {
            worker.stops.insert(id.clone());
        }
        self.mark_ended(id, &job);
    }

    fn mark_ended(&mut self, id: &JobId, job: &RemoteJob) {
        self.early_results
            .mark_ended(id, Some(job.events.end_commit()));
        if let Some(worker) = job
            .assignment
            .as_ref()
            .and_then(|assignment| self.workers.get(&assignment.worker))
        {
            worker.stops_changed.notify_waiters();
        }
    }

    /// Ends a job that exceeded its execution timeout, or unassigns it when its worker is lost.
    /// Returns whether the job waits again.
    pub(crate) fn check_worker(&mut self, id: &JobId, config: &Config, now: Instant) -> bool {
        let Some(job) = self.jobs.get(id) else {
            return false;
        };
        let Some(assignment) = job
            .assignment
            .as_ref()
            .filter(|assignment| assignment.state != AssignmentState::Offered)
        else {
            return false;
        };
        let elapsed = now.saturating_duration_since(assignment.since) + assignment.before;
        if let Some(limit) = job.execution_timeout().filter(|limit| elapsed > *limit) {
            let error = format!(
                "job timed out: its worker had it for {} ms (executionTimeout)",
                limit.as_millis()
            );
            self.end(
                id,
                vec![
                    Event::Remote(RemoteFact::TimedOut),
                    Event::Ended(Outcome::Failed { error }),
                ],
            );
            return false;
        }
        self.assignment_loss(assignment, config, now)
            .is_some_and(|reason| self.lose_worker(id, reason, config, now))
    }

    /// Unassigns a job whose worker is lost, or ends the job after the last delivery. Returns whether
    /// the job waits again.
    pub(crate) fn lose_worker(
        &mut self,
        id: &JobId,
        reason: &str,
        config: &Config,
        now: Instant,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(id) else {
            return false;
        };
        job.report_lost_worker(now);
        let worker = job.unassign();
        let worker = worker.as_ref().map_or("none", |worker| worker.as_str());
        tracing::warn!(job = %id, worker, reason, "job lost its worker");
        if job.deliveries - job.undelivered >= config.max_deliveries {
            let error = format!(
                "worker `{worker}` was lost with the job ({reason}), and {} workers before it",
                config.max_deliveries - 1
            );
            self.end(id, vec![Event::Ended(Outcome::Failed { error })]);
            return false;
        }
        self.retried += 1;
        self.redeliveries.push_back(id.clone());
        true
    }

    /// The number of workers in each state.
    pub(crate) fn worker_counts(&mut self, config: &Config, now: Instant) -> WorkerCounts {
        let mut counts = WorkerCounts::default();
        for worker in self.worker_statuses(config, now) {
            match worker.state {
                WorkerActivity::Unhealthy => counts.unhealthy += 1,
                WorkerActivity::Running => counts.running += 1,
                WorkerActivity::Idle => counts.idle += 1,
                WorkerActivity::Initializing => counts.initializing += 1,
                WorkerActivity::Gone => {}
            }
        }
        counts
    }

    /// The workers that are remembered, in any order.
    pub(crate) fn worker_statuses(&mut self, config: &Config, now: Instant) -> Vec<WorkerStatus> {
        self.workers
            .retain(|_, worker| now.saturating_duration_since(worker.last_seen()) < REMOVE_AFTER);
        let assigned = self
            .jobs
            .values()
            .filter_map(|job| Some(&job.assignment.as_ref()?.worker));
        // Workers with a job from the previous server process are busy too.
        let unstarted = self
            .unstarted
            .values()
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_timeout);
        let mut jobs: HashMap<&WorkerId, usize> = HashMap::new();
        for worker in assigned.chain(unstarted.map(|(worker, _)| worker)) {
            *jobs.entry(worker).or_default() += 1;
        }
        let status = |(id, worker): (&WorkerId, &WorkerState)| {
            let last_seen = now.saturating_duration_since(worker.last_seen());
            // A worker without a job may end without a message.
            let silent = last_seen > config.ping_timeout * 3;
            let gone = silent || worker.loss_reason(config, now).is_some();
            let jobs = jobs.get(id).copied().unwrap_or_default();
            WorkerStatus {
                id: id.clone(),
                state: match () {
                    () if worker.unhealthy => WorkerActivity::Unhealthy,
                    () if jobs > 0 => WorkerActivity::Running,
                    () if gone => WorkerActivity::Gone,
                    () if worker.asked_for_jobs => WorkerActivity::Idle,
                    () => WorkerActivity::Initializing,
                },
                jobs,
                last_seen,
            }
        };
        self.workers.iter().map(status).collect()
    }
}
