//! [`RemoteExecutor`]: the handle that the service and the workers' API call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::port::Admission;
use tidegate_core::{JobId, Refusal, Work};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::{Adoption, WorkerSlot};
use crate::dispatch_state::{AdmissionWaiter, DispatchState};
use crate::event_queue::EventSender;
use crate::job_offer::JobOffer;
use crate::worker::{WorkerCounts, WorkerId, WorkerStatus};

/// When a worker is lost, and how often a job is delivered.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// A worker that does not ping for this long is lost.
    pub ping_timeout: Duration,
    /// A worker that drops a long poll is lost if it does not reconnect within this time.
    pub reconnect_timeout: Duration,
    /// How many workers get a job; when the last one is lost, the job fails.
    pub max_deliveries: u32,
    /// How long a report waits until it is committed; then the worker has to send it again.
    pub commit_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            ping_timeout: 30 * second,
            reconnect_timeout: 5 * second,
            max_deliveries: 3,
            commit_timeout: 10 * second,
        }
    }
}

/// How long a request for jobs to stop is held open.
#[derive(Debug, Clone, Copy)]
pub struct LongPollTimes {
    /// While the worker has no job.
    pub idle: Duration,
    /// While the worker has a job: a dropped request shows that the worker died.
    pub busy: Duration,
}

/// Runs jobs on remote workers. Cloning gives another handle.
#[derive(Clone)]
pub struct RemoteExecutor {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    state: Mutex<DispatchState>,
    /// A job waits for a worker.
    pub(crate) job_waiting: Notify,
    /// A job was started whose result may have arrived before.
    pub(crate) job_started: Notify,
    closing: CancellationToken,
}

impl RemoteExecutor {
    /// An executor without jobs and workers.
    pub fn new(config: Config) -> Self {
        let inner = Inner {
            config,
            state: Mutex::default(),
            job_waiting: Notify::new(),
            job_started: Notify::new(),
            closing: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut DispatchState) -> R) -> R {
        f(&mut self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// At most `max` jobs for a worker; waits for the first, up to `hold`. Cancel-safe: a worker that
    /// disconnects gets none.
    pub async fn take_jobs(&self, worker: &WorkerId, max: usize, hold: Duration) -> Vec<JobOffer> {
        let mut poll = self.long_poll(worker, PollKind::Jobs);
        if self.with(|state| state.worker(worker, Instant::now()).begin_take()) {
            tracing::warn!(%worker, "worker has several open requests for jobs: it has raised its concurrency, or two workers use the same id and each loses jobs by the other's reports; give each its own RUNPOD_POD_ID");
        }
        let deadline = Instant::now() + hold;
        loop {
            let job_waiting = self.inner.job_waiting.notified();
            tokio::pin!(job_waiting);
            job_waiting.as_mut().enable();
            let (mut offers, slots) = self.assign(worker, max);
            let assigned = !slots.is_empty();
            let paused_until =
                self.with(|state| state.handout_resumes_at.filter(|at| *at > Instant::now()));
            let wake_at = paused_until.map_or(deadline, |at| at.min(deadline));
            for slot in slots {
                // The job may have been canceled before it got here.
                offers.extend(slot.await.ok());
            }
            let done = tokio::select! {
                biased;
                () = std::future::ready(()), if !offers.is_empty() => true,
                () = self.inner.closing.cancelled() => true,
                () = std::future::ready(()), if assigned => false,
                waited = tokio::time::timeout_at(wake_at, job_waiting) => waited.is_err() && Instant::now() >= deadline,
            };
            if done {
                poll.answered = true;
                return offers;
            }
        }
    }

    /// Offers of started jobs that wait for another worker, and slots for jobs from the queue.
    fn assign(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> (Vec<JobOffer>, Vec<oneshot::Receiver<JobOffer>>) {
        let (mut offers, mut slots) = (Vec::new(), Vec::new());
        self.with(|state| {
            if state.closed || state.is_paused(Instant::now()) {
                return;
            }
            while offers.len() < max
                && let Some((work, delivery)) = state.next_redelivery(worker, Instant::now())
            {
                offers.push(JobOffer::new(self.clone(), work, worker.clone(), delivery));
            }
            while offers.len() + slots.len() < max
                && let Some(waiter) = state.queue.pop()
            {
                let (offer, slot) = oneshot::channel();
                let sent = waiter.slot.send(WorkerSlot {
                    executor: self.clone(),
                    worker: worker.clone(),
                    offer,
                });
                // A caller that left the queue needs no slot.
                if sent.is_ok() {
                    slots.push(slot);
                }
            }
        });
        (offers, slots)
    }

    /// The jobs that a worker must stop; waits for the first.
    pub async fn jobs_to_stop(&self, worker: &WorkerId, hold: LongPollTimes) -> Vec<JobId> {
        let mut poll = self.long_poll(worker, PollKind::Stops);
        let (since, stops_changed) = (
            Instant::now(),
            self.with(|state| Arc::clone(&state.worker(worker, Instant::now()).stops_changed)),
        );
        loop {
            let changed = stops_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (stops, busy) = self.with(|state| {
                let stops = std::mem::take(&mut state.worker(worker, Instant::now()).stops);
                (stops, state.is_busy(worker))
            });
            let deadline = since + if busy { hold.busy } else { hold.idle };
            let done = !stops.is_empty()
                || deadline <= Instant::now()
                || self.inner.closing.is_cancelled();
            if done {
                poll.answered = true;
                return stops.into_iter().collect();
            }
            tokio::select! {
                () = &mut changed => {}
                () = tokio::time::sleep_until(deadline) => {}
                () = self.inner.closing.cancelled() => {}
            }
        }
    }

    /// Tells the worker to stop a job that was canceled before it was started here. A worker may have
    /// it from the previous server process.
    pub fn stop_unstarted(&self, id: &JobId) {
        self.with(|state| state.stop_unstarted(id));
    }

    /// Records a worker's ping with the jobs that it has; `None` when the list is not complete.
    /// Returns those that were not started here: the worker may have them from the previous server
    /// process and keeps them through [`adoption`](RemoteExecutor::adoption).
    pub fn ping(&self, worker: &WorkerId, jobs: Option<&[&str]>) -> Vec<JobId> {
        self.with(|state| state.record_ping(worker, jobs, Instant::now()))
    }

    /// Admission for a job that a worker has had from the previous server process for the time
    /// `before`.
    pub fn adoption(&self, worker: &WorkerId, before: Duration) -> Box<dyn Admission> {
        Box::new(Adoption {
            executor: self.clone(),
            worker: worker.clone(),
            before,
        })
    }

    /// Records that a worker that is about to ask for jobs has none.
    pub fn report_idle(&self, worker: &WorkerId) {
        self.with(|state| state.report_idle(worker, &self.inner.config, Instant::now()));
    }

    /// Records that a worker reported itself unhealthy.
    pub fn mark_unhealthy(&self, worker: &WorkerId) {
        self.with(|state| state.worker(worker, Instant::now()).unhealthy = true);
    }

    /// The number of workers in each state.
    pub fn worker_counts(&self) -> WorkerCounts {
        self.with(|state| state.worker_counts(&self.inner.config, Instant::now()))
    }

    /// The workers that are remembered, by id.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        let mut workers = self.with(|state| state.worker_statuses(&self.inner.config, now));
        workers.sort_by(|a, b| a.id.as_str().cmp(b.id.as_str()));
        workers
    }

    /// The started jobs that wait for another worker.
    pub fn awaiting_redelivery(&self) -> Vec<JobId> {
        self.with(|state| state.awaiting_redelivery())
    }

    /// How often a job was given to another worker because the first was lost.
    pub fn retry_count(&self) -> u64 {
        self.with(|state| state.retried)
    }

    /// Hands out no jobs until [`resume_handout`](RemoteExecutor::resume_handout).
    pub fn pause_handout(&self) {
        self.with(|state| state.is_handout_paused = true);
    }

    /// Hands out jobs after this time: workers with jobs from the previous server process can name them
    /// first.
    pub fn resume_handout(&self, after: Duration) {
        self.with(|state| {
            state.is_handout_paused = false;
            state.handout_resumes_at = Some(Instant::now() + after);
        });
        // Open requests for jobs learn the time.
        self.inner.job_waiting.notify_waiters();
    }

    /// Whether [`close`](RemoteExecutor::close) was called.
    pub fn is_closed(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Hands out no more jobs and answers open long polls. Reports are still applied.
    pub fn close(&self) {
        let queue = self.with(|state| {
            state.closed = true;
            std::mem::take(&mut state.queue)
        });
        drop(queue);
        self.inner.closing.cancel();
    }

    pub(crate) fn enqueue(&self, waiter: AdmissionWaiter) -> Result<(), Refusal> {
        self.with(|state| {
            if state.closed {
                return Err(Refusal::Closing);
            }
            state.queue.push(waiter);
            Ok(())
        })?;
        self.inner.job_waiting.notify_one();
        Ok(())
    }

    /// Starts a job. Returns the offer for the worker, unless the job's result is already here or
    /// another worker has the job.
    pub(crate) fn start(
        &self,
        work: Work,
        events: EventSender,
        worker: WorkerId,
    ) -> Option<JobOffer> {
        let delivery = self
            .with(|state| state.start(&work, events, &worker, &self.inner.config, Instant::now()));
        self.inner.job_started.notify_waiters();
        let delivery = delivery?;
        Some(JobOffer::new(self.clone(), work, worker, delivery))
    }

    pub(crate) fn adopt(
        &self,
        work: &Work,
        events: EventSender,
        worker: &WorkerId,
        before: Duration,
    ) {
        self.with(|state| state.adopt(work, events, worker, before, Instant::now()));
        self.inner.job_started.notify_waiters();
    }

    pub(crate) fn offer_delivered(&self, id: &JobId, delivery: u32) {
        self.with(|state| state.offer_delivered(id, delivery, Instant::now()));
    }

    pub(crate) fn offer_undelivered(&self, id: &JobId, worker: &WorkerId, delivery: u32) {
        if self.with(|state| state.offer_undelivered(id, delivery)) {
            tracing::debug!(job = %id, %worker, "job did not reach its worker; offering it to the next");
            self.inner.job_waiting.notify_one();
        }
    }

    pub(crate) fn cancel(&self, id: &JobId) {
        self.with(|state| state.cancel(id));
    }

    /// Checks the worker and the execution timeout of a running job.
    pub(crate) fn check_worker(&self, id: &JobId) {
        if self.with(|state| state.check_worker(id, &self.inner.config, Instant::now())) {
            self.inner.job_waiting.notify_one();
        }
    }

    fn long_poll(&self, worker: &WorkerId, kind: PollKind) -> LongPoll {
        self.with(|state| {
            let worker = state.worker(worker, Instant::now());
            worker.record_request(Instant::now());
            worker.unhealthy = false;
            if kind == PollKind::Stops {
                worker.begin_stop_poll();
            }
        });
        LongPoll {
            executor: self.clone(),
            worker: worker.clone(),
            kind,
            answered: false,
        }
    }
}

/// What a worker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollKind {
    Jobs,
    Stops,
}

/// An open request of a worker. If it is dropped unanswered, the worker disconnected.
struct LongPoll {
    executor: RemoteExecutor,
    worker: WorkerId,
    kind: PollKind,
    answered: bool,
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        let (answered, now) = (self.answered, Instant::now());
        let waiting = self.executor.with(|state| {
            let worker = state.worker(&self.worker, now);
            match self.kind {
                PollKind::Jobs => worker.end_take(),
                PollKind::Stops => worker.end_stop_poll(now),
            }
            if answered {
                worker.record_request(now)
            } else {
                worker.record_disconnect(now)
            }
            state.has_waiting()
        });
        // This poll may have been woken for a job that it did not take.
        if waiting {
            self.executor.inner.job_waiting.notify_one();
        }
    }
}
