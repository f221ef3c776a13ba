//! Who waits, who has which job, who is there: the state behind one lock, and how it changes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::fair_queue::{FairQueue, HasOwner};
use tidegate_core::{Account, Event, JobId, Outcome, Work};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::admission::WorkerSlot;
use crate::assignment::{AssignmentState, RemoteJob};
use crate::early_results::EarlyResults;
use crate::executor::Config;
use crate::reports::{JobReport, ReportOutcome, WorkerResult, note, noted};
use crate::worker::{WorkerCounts, WorkerId, WorkerState};

/// A worker of which nothing was heard for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// The most workers that are remembered: whoever may ask chooses its own name.
const MOST_WORKERS: usize = 10_000;
/// What a worker says may have been on its way for so long.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// AssignmentState many jobs are remembered that workers have and nobody has begun here.
const MOST_NAMED: usize = 10_000;
/// Pings in a row that do not name a job before it is taken for lost.
const UNNAMED_PINGS: u32 = 2;

/// A job in the line.
pub(crate) struct AdmissionWaiter {
    pub(crate) account: Account,
    pub(crate) give: oneshot::Sender<WorkerSlot>,
}

impl HasOwner for AdmissionWaiter {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }
}

#[derive(Default)]
pub(crate) struct DispatchState {
    pub(crate) queue: FairQueue<AdmissionWaiter>,
    /// Jobs that were begun and wait for another worker; they go before the line.
    redeliveries: VecDeque<JobId>,
    jobs: HashMap<JobId, RemoteJob>,
    workers: HashMap<WorkerId, WorkerState>,
    early_results: EarlyResults,
    /// Jobs that nobody has begun here, with the worker that says it has them.
    named: HashMap<JobId, (WorkerId, Instant)>,
    pub(crate) retried: u64,
    pub(crate) closed: bool,
    /// Nothing is given out before.
    pub(crate) paused_until: Option<Instant>,
}

impl DispatchState {
    pub(crate) fn worker(&mut self, id: &WorkerId, now: Instant) -> &mut WorkerState {
        if !self.workers.contains_key(id) && self.workers.len() >= MOST_WORKERS {
            let oldest = self
                .workers
                .iter()
                .min_by_key(|(_, worker)| worker.last_sign())
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

    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || !self.redeliveries.is_empty()
    }

    /// The jobs that were begun and wait for another worker.
    pub(crate) fn awaiting_redelivery(&self) -> Vec<JobId> {
        self.jobs
            .iter()
            .filter(|(_, job)| job.assignment.is_none())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The next job that waits for another worker, given to this one: the job and the number of the delivery.
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
                return Some((job.work.clone(), job.send_to(worker, now)));
            }
        }
    }

    /// A job gets to a worker for the first time; the number of the delivery. `None` when a worker has it
    /// from a server before this one, or has brought its result already.
    pub(crate) fn begin(
        &mut self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        config: &Config,
        now: Instant,
    ) -> Option<u32> {
        let mut job = self.opened(work, events)?;
        let named = self
            .named
            .remove(&work.id)
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_timeout);
        let delivery = match named {
            Some((owner, _)) => {
                job.tell(noted(note::WORKER, owner.to_string().into()));
                job.is_with(&owner, Duration::ZERO, now);
                None
            }
            None => Some(job.send_to(worker, now)),
        };
        self.jobs.insert(work.id.clone(), job);
        delivery
    }

    /// A worker has a job from a server before this one, for so long already; or has brought its result.
    pub(crate) fn adopt(
        &mut self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        before: Duration,
        now: Instant,
    ) {
        self.named.remove(&work.id);
        // Whoever does not listen any more is about to cancel it.
        events
            .send(noted(note::WORKER, worker.to_string().into()))
            .ok();
        let Some(mut job) = self.opened(work, events) else {
            return;
        };
        job.is_with(worker, before, now);
        self.jobs.insert(work.id.clone(), job);
    }

    /// A job that begins here, in nobody's hands yet; `None` when its result is here already, which is told.
    fn opened(&mut self, work: &Work, events: mpsc::UnboundedSender<Event>) -> Option<RemoteJob> {
        self.early_results.begins(&work.id);
        let job = RemoteJob::new(work.clone(), events);
        let Some(finish) = self.early_results.take(&work.id) else {
            return Some(job);
        };
        finish
            .events(0)
            .into_iter()
            .for_each(|event| job.tell(event));
        self.early_results.is_over(&work.id);
        None
    }

    pub(crate) fn arrived(&mut self, id: &JobId, delivery: u32, now: Instant) {
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
        (assignment.how, assignment.since) = (AssignmentState::Delivered, now);
        let worker = assignment.worker.to_string();
        job.tell(noted(note::WORKER, worker.into()));
        if job.deliveries > 1 {
            job.tell(noted(note::WAITS, Value::Null));
        }
        if retries > 0 {
            job.tell(noted(note::RETRIES, retries.into()));
        }
    }

    /// A offer came back. Says whether the job waits again.
    pub(crate) fn undelivered_offer(&mut self, id: &JobId, delivery: u32) -> bool {
        let Some(job) = self
            .jobs
            .get_mut(id)
            .filter(|job| job.deliveries == delivery)
        else {
            return false;
        };
        job.waits();
        job.undelivered += 1;
        self.redeliveries.push_front(id.clone());
        true
    }

    pub(crate) fn report(
        &mut self,
        worker: &WorkerId,
        id: &JobId,
        report: JobReport,
        config: &Config,
    ) -> ReportOutcome {
        let from_holder = |job: &RemoteJob| {
            job.assignment
                .as_ref()
                .is_some_and(|assignment| assignment.worker == *worker)
        };
        let adopted = |job: &RemoteJob| {
            job.assignment
                .as_ref()
                .is_some_and(|assignment| assignment.how == AssignmentState::Adopted)
        };
        let stream_goes_on = match &report {
            JobReport::Part(_) => true,
            JobReport::StreamDone(finish) => finish.is_bare(),
            JobReport::Progress(_) | JobReport::Done(_) => false,
        };
        if stream_goes_on
            && self
                .jobs
                .get(id)
                .is_some_and(|job| from_holder(job) && adopted(job))
        {
            self.lose(
                id,
                "the parts that it gave to a server before this one are lost",
                config,
            );
            return ReportOutcome::Ignored;
        }
        match report {
            JobReport::Done(finish) => self.finish(worker, id, finish),
            JobReport::StreamDone(finish)
                if !finish.is_bare() || self.jobs.get(id).is_some_and(from_holder) =>
            {
                self.finish(worker, id, finish)
            }
            JobReport::StreamDone(_) => ReportOutcome::Ignored,
            JobReport::Progress(value) => match self.jobs.get(id).filter(|job| from_holder(job)) {
                Some(job) => {
                    job.tell(noted(note::PROGRESS, value));
                    ReportOutcome::Applied
                }
                None => ReportOutcome::Ignored,
            },
            JobReport::Part(json) => match self.jobs.get_mut(id).filter(|job| from_holder(job)) {
                Some(job) => job.part(json),
                None => ReportOutcome::Ignored,
            },
        }
    }

    /// The first who ends a job ends it, also when it was sent to somebody else meanwhile.
    fn finish(&mut self, worker: &WorkerId, id: &JobId, finish: WorkerResult) -> ReportOutcome {
        let Some(job) = self.jobs.remove(id) else {
            self.named.remove(id);
            return if self.early_results.keep(id, finish) {
                ReportOutcome::Buffered
            } else {
                ReportOutcome::Ignored
            };
        };
        if job
            .assignment
            .as_ref()
            .is_none_or(|assignment| assignment.worker != *worker)
        {
            job.tell(noted(note::WAITS, Value::Null));
            job.tell(noted(note::WORKER, worker.to_string().into()));
        }
        finish
            .events(job.told)
            .into_iter()
            .for_each(|event| job.tell(event));
        self.over(id, &job);
        ReportOutcome::Applied
    }

    pub(crate) fn cancel(&mut self, id: &JobId) {
        self.end(id, vec![Event::Ended(Outcome::Canceled)]);
    }

    /// A job that nobody has begun here is not wanted any more. The worker that has it from before is told to stop.
    pub(crate) fn stop_unstarted(&mut self, id: &JobId) {
        let Some((worker, _)) = self.named.remove(id) else {
            return;
        };
        self.early_results.is_over(id);
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.stops.insert(id.clone());
            worker.stops_changed.notify_waiters();
        }
    }

    /// Ends a job whatever its worker does, which is told to stop.
    fn end(&mut self, id: &JobId, events: Vec<Event>) {
        let Some(job) = self.jobs.remove(id) else {
            return;
        };
        events.into_iter().for_each(|event| job.tell(event));
        if let Some(worker) = job
            .assignment
            .as_ref()
            .and_then(|assignment| self.workers.get_mut(&assignment.worker))
        {
            worker.stops.insert(id.clone());
        }
        self.over(id, &job);
    }

    fn over(&mut self, id: &JobId, job: &RemoteJob) {
        self.early_results.is_over(id);
        if let Some(worker) = job
            .assignment
            .as_ref()
            .and_then(|assignment| self.workers.get(&assignment.worker))
        {
            worker.stops_changed.notify_waiters();
        }
    }

    /// Which jobs a worker says it has; `None` when it does not say. Tells those that nobody has begun here.
    pub(crate) fn pinged(
        &mut self,
        worker: &WorkerId,
        named: Option<&[&str]>,
        now: Instant,
    ) -> Vec<JobId> {
        let (Some(named), mut strange) = (named, Vec::new()) else {
            return Vec::new();
        };
        self.named
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGOTTEN_AFTER);
        for id in named
            .iter()
            .filter(|id| !self.jobs.contains_key(**id))
            .filter_map(|id| JobId::parse(id).ok())
        {
            if self.named.len() < MOST_NAMED && !self.early_results.knows(&id) {
                self.named.insert(id.clone(), (worker.clone(), now));
                strange.push(id);
            }
        }
        for (id, job) in &mut self.jobs {
            let Some(assignment) = job.assignment.as_mut().filter(|assignment| {
                assignment.worker == *worker && assignment.how != AssignmentState::Offered
            }) else {
                continue;
            };
            // A ping that was on its way while the job came says nothing about it.
            let old_enough = now.saturating_duration_since(assignment.since) > ON_ITS_WAY;
            let is_named = named.contains(&id.as_str());
            assignment.named |= is_named;
            assignment.unnamed = if is_named {
                0
            } else {
                assignment.unnamed + u32::from(old_enough)
            };
        }
        strange
    }

    /// A worker asks for jobs and says that it has none: what it was sent and never named did not reach it.
    pub(crate) fn report_idle(&mut self, worker: &WorkerId, config: &Config, now: Instant) {
        let never_came = |job: &RemoteJob| {
            job.assignment.as_ref().is_some_and(|assignment| {
                let since = now.saturating_duration_since(assignment.since);
                assignment.worker == *worker
                    && assignment.how == AssignmentState::Delivered
                    && !assignment.named
                    && since > ON_ITS_WAY
            })
        };
        let lost: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| never_came(job))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            self.lose(&id, "it says that it has no job", config);
        }
    }

    /// Takes a job from a worker that is lost, or ends it when it took too long. Says whether it waits again.
    pub(crate) fn check_worker(&mut self, id: &JobId, config: &Config, now: Instant) -> bool {
        let Some(job) = self.jobs.get(id) else {
            return false;
        };
        let Some(assignment) = job
            .assignment
            .as_ref()
            .filter(|assignment| assignment.how != AssignmentState::Offered)
        else {
            return false;
        };
        let had_it = now.saturating_duration_since(assignment.since) + assignment.before;
        if let Some(limit) = job.limit().filter(|limit| had_it > *limit) {
            let error = format!(
                "job timed out: the worker had it for {} ms (executionTimeout)",
                limit.as_millis()
            );
            self.end(
                id,
                vec![
                    noted(note::TIMED_OUT, true.into()),
                    Event::Ended(Outcome::Failed { error }),
                ],
            );
            return false;
        }
        let lost = match self.workers.get(&assignment.worker) {
            None => Some("it was forgotten"),
            Some(_) if assignment.unnamed >= UNNAMED_PINGS => {
                Some("its pings do not name the job any more")
            }
            Some(worker) => worker.is_lost(config, now),
        };
        lost.is_some_and(|why| self.lose(id, why, config))
    }

    fn lose(&mut self, id: &JobId, why: &str, config: &Config) -> bool {
        let Some(job) = self.jobs.get_mut(id) else {
            return false;
        };
        let worker = job.waits();
        let worker = worker.as_ref().map_or("nobody", |worker| worker.as_str());
        tracing::warn!(job = %id, worker, why, "a worker was lost with a job");
        if job.deliveries - job.undelivered >= config.max_deliveries {
            let error = format!(
                "worker `{worker}` was lost with the job ({why}), and {} workers before it",
                config.max_deliveries - 1
            );
            self.end(id, vec![Event::Ended(Outcome::Failed { error })]);
            return false;
        }
        self.retried += 1;
        self.redeliveries.push_back(id.clone());
        true
    }

    pub(crate) fn worker_counts(&mut self, config: &Config, now: Instant) -> WorkerCounts {
        self.workers.retain(|_, worker| {
            now.saturating_duration_since(worker.last_sign()) < FORGOTTEN_AFTER
        });
        let holders = self
            .jobs
            .values()
            .filter_map(|job| Some(&job.assignment.as_ref()?.worker));
        // Those that have a job from a server before this one work too.
        let named = self
            .named
            .values()
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_timeout);
        let busy: HashSet<&WorkerId> = holders.chain(named.map(|(worker, _)| worker)).collect();
        let mut count = WorkerCounts::default();
        for (id, worker) in &self.workers {
            // One that is gone without a job is missed by nobody.
            let silent =
                now.saturating_duration_since(worker.last_sign()) > config.ping_timeout * 3;
            let gone = silent || worker.is_lost(config, now).is_some();
            match () {
                () if worker.unhealthy => count.unhealthy += 1,
                () if busy.contains(id) => count.running += 1,
                () if gone => {}
                () if worker.asked => count.idle += 1,
                () => count.initializing += 1,
            }
        }
        count
    }
}
