//! The handle: what the desk and what the workers call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::port::Admission;
use tidegate_core::{Event, JobId, Refusal, Work};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::{Adoption, WorkerSlot};
use crate::dispatch_state::{AdmissionWaiter, DispatchState};
use crate::job_offer::JobOffer;
use crate::reports::{JobReport, ReportOutcome};
use crate::worker::{WorkerCounts, WorkerId};

/// When a worker is given up, and how often a job is tried.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// A worker that pings and then does not for this long is lost.
    pub ping_timeout: Duration,
    /// A worker that breaks off a question is lost if it does not come back within this time.
    pub reconnect_timeout: Duration,
    /// AssignmentState many workers a job is given to; with the last one it fails.
    pub max_deliveries: u32,
}

impl Default for Config {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            ping_timeout: 30 * second,
            reconnect_timeout: 5 * second,
            max_deliveries: 3,
        }
    }
}

/// AssignmentState long a question about jobs to stop is left open.
#[derive(Debug, Clone, Copy)]
pub struct LongPollTimes {
    /// While the worker has no job.
    pub idle: Duration,
    /// While it has one: when it breaks off, its worker has died.
    pub busy: Duration,
}

/// Workers elsewhere. Cloning gives another handle.
#[derive(Clone)]
pub struct RemoteExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    state: Mutex<DispatchState>,
    /// A job has come that a worker can have.
    came: Notify,
    closing: CancellationToken,
}

impl RemoteExecutor {
    /// No jobs and no workers yet.
    pub fn new(config: Config) -> Self {
        let inner = Inner {
            config,
            state: Mutex::default(),
            came: Notify::new(),
            closing: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut DispatchState) -> R) -> R {
        f(&mut self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Jobs for a worker, at most so many; waits for the first. Cancel-safe: a worker that leaves gets none.
    pub async fn take_jobs(&self, worker: &WorkerId, most: usize, hold: Duration) -> Vec<JobOffer> {
        let mut question = self.question(worker, PollKind::Jobs);
        if self.with(|state| state.worker(worker, Instant::now()).begins_to_ask()) {
            tracing::warn!(%worker, "two workers seem to have one name, and jobs of one are lost by what the other says; give each its own");
        }
        let until = Instant::now() + hold;
        loop {
            let came = self.inner.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            let (mut offers, slots) = self.slots(worker, most);
            let tried = !slots.is_empty();
            let paused_until =
                self.with(|state| state.paused_until.filter(|at| *at > Instant::now()));
            let look_again = paused_until.map_or(until, |at| at.min(until));
            for slot in slots {
                // The job may have been canceled on the way here.
                offers.extend(slot.await.ok());
            }
            let rests = tokio::select! {
                biased;
                () = std::future::ready(()), if !offers.is_empty() => true,
                () = self.inner.closing.cancelled() => true,
                () = std::future::ready(()), if tried => false,
                waited = tokio::time::timeout_at(look_again, came) => waited.is_err() && Instant::now() >= until,
            };
            if rests {
                question.answered = true;
                return offers;
            }
        }
    }

    /// Jobs that wait for another worker, and places for those from the line.
    fn slots(
        &self,
        worker: &WorkerId,
        most: usize,
    ) -> (Vec<JobOffer>, Vec<oneshot::Receiver<JobOffer>>) {
        let (mut offers, mut slots) = (Vec::new(), Vec::new());
        self.with(|state| {
            if state.closed || state.paused_until.is_some_and(|at| at > Instant::now()) {
                return;
            }
            while offers.len() < most
                && let Some((work, delivery)) = state.next_redelivery(worker, Instant::now())
            {
                offers.push(JobOffer::new(self.clone(), work, worker.clone(), delivery));
            }
            while offers.len() + slots.len() < most
                && let Some(waiting) = state.queue.pop()
            {
                let (offer, slot) = oneshot::channel();
                let given = waiting.give.send(WorkerSlot {
                    remote: self.clone(),
                    worker: worker.clone(),
                    offer,
                });
                // Whoever left the line needs no place.
                if given.is_ok() {
                    slots.push(slot);
                }
            }
        });
        (offers, slots)
    }

    /// The jobs that a worker is to stop; waits for one.
    pub async fn jobs_to_stop(&self, worker: &WorkerId, holds: LongPollTimes) -> Vec<JobId> {
        let mut question = self.question(worker, PollKind::Stops);
        let (since, stops_changed) = (
            Instant::now(),
            self.with(|state| Arc::clone(&state.worker(worker, Instant::now()).stops_changed)),
        );
        loop {
            let stir = stops_changed.notified();
            tokio::pin!(stir);
            stir.as_mut().enable();
            let (stops, busy) = self.with(|state| {
                let stops = std::mem::take(&mut state.worker(worker, Instant::now()).stops);
                (stops, state.is_busy(worker))
            });
            let until = since + if busy { holds.busy } else { holds.idle };
            let over =
                !stops.is_empty() || until <= Instant::now() || self.inner.closing.is_cancelled();
            if over {
                question.answered = true;
                return stops.into_iter().collect();
            }
            tokio::select! {
                () = &mut stir => {}
                () = tokio::time::sleep_until(until) => {}
                () = self.inner.closing.cancelled() => {}
            }
        }
    }

    /// Something that a worker says about a job.
    pub fn apply_report(&self, worker: &WorkerId, id: &JobId, report: JobReport) -> ReportOutcome {
        let (heard, waiting) = self.with(|state| {
            state
                .worker(worker, Instant::now())
                .is_there(Instant::now());
            (
                state.report(worker, id, report, &self.inner.config),
                state.has_waiting(),
            )
        });
        // It may have cost the worker its job.
        if waiting {
            self.inner.came.notify_one();
        }
        heard
    }

    /// A job was canceled before it began here. A worker may have it from a server before this one.
    pub fn stop_unstarted(&self, id: &JobId) {
        self.with(|state| state.stop_unstarted(id));
    }

    /// A sign of life with the jobs that the worker has; `None` when it does not say which. Says which of them
    /// nobody has begun here: it may have them from a server before this one, and [keeps](RemoteExecutor::keeping) them.
    pub fn ping(&self, worker: &WorkerId, jobs: Option<&[&str]>) -> Vec<JobId> {
        let now = Instant::now();
        self.with(|state| {
            state.worker(worker, now).pinged = Some(now);
            state.pinged(worker, jobs, now)
        })
    }

    /// A place for a job that a worker has from a server before this one, for so long already.
    pub fn adoption(&self, worker: &WorkerId, before: Duration) -> Box<dyn Admission> {
        Box::new(Adoption {
            remote: self.clone(),
            worker: worker.clone(),
            before,
        })
    }

    /// A worker that is about to ask says that it has no jobs.
    pub fn report_idle(&self, worker: &WorkerId) {
        self.with(|state| state.report_idle(worker, &self.inner.config, Instant::now()));
    }

    /// A worker says that it cannot work.
    pub fn mark_unhealthy(&self, worker: &WorkerId) {
        self.with(|state| state.worker(worker, Instant::now()).unhealthy = true);
    }

    /// AssignmentState many workers do what.
    pub fn worker_counts(&self) -> WorkerCounts {
        self.with(|state| state.worker_counts(&self.inner.config, Instant::now()))
    }

    /// The jobs that were begun and wait for another worker.
    pub fn awaiting_redelivery(&self) -> Vec<JobId> {
        self.with(|state| state.awaiting_redelivery())
    }

    /// AssignmentState often a job was given to another worker because the first was lost.
    pub fn retry_count(&self) -> u64 {
        self.with(|state| state.retried)
    }

    /// Gives out nothing for a while: workers that have jobs from a server before this one get time to say so.
    pub fn pause_handout(&self, time: Duration) {
        self.with(|state| state.paused_until = Some(Instant::now() + time));
    }

    /// Whether no more jobs are given out.
    pub fn is_closed(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Gives out no more jobs; questions that are open are answered. Reports are still heard.
    pub fn close(&self) {
        let line = self.with(|state| {
            state.closed = true;
            std::mem::take(&mut state.queue)
        });
        drop(line);
        self.inner.closing.cancel();
    }

    pub(crate) fn enqueue(&self, waiting: AdmissionWaiter) -> Result<(), Refusal> {
        self.with(|state| {
            if state.closed {
                return Err(Refusal::Closing);
            }
            state.queue.push(waiting);
            Ok(())
        })?;
        self.inner.came.notify_one();
        Ok(())
    }

    /// A job begins; what is sent to the worker, unless its result is there already.
    pub(crate) fn begin(
        &self,
        work: Work,
        events: mpsc::UnboundedSender<Event>,
        worker: WorkerId,
    ) -> Option<JobOffer> {
        let delivery = self.with(|state| {
            state.begin(&work, events, &worker, &self.inner.config, Instant::now())
        })?;
        Some(JobOffer::new(self.clone(), work, worker, delivery))
    }

    pub(crate) fn adopt(
        &self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        before: Duration,
    ) {
        self.with(|state| state.adopt(work, events, worker, before, Instant::now()));
    }

    pub(crate) fn arrived(&self, id: &JobId, delivery: u32) {
        self.with(|state| state.arrived(id, delivery, Instant::now()));
    }

    pub(crate) fn undelivered_offer(&self, id: &JobId, worker: &WorkerId, delivery: u32) {
        if self.with(|state| state.undelivered_offer(id, delivery)) {
            tracing::debug!(job = %id, %worker, "a job did not get to its worker and goes to the next");
            self.inner.came.notify_one();
        }
    }

    pub(crate) fn cancel(&self, id: &JobId) {
        self.with(|state| state.cancel(id));
    }

    pub(crate) fn check_worker(&self, id: &JobId) {
        if self.with(|state| state.check_worker(id, &self.inner.config, Instant::now())) {
            self.inner.came.notify_one();
        }
    }

    fn question(&self, worker: &WorkerId, about: PollKind) -> LongPoll {
        self.with(|state| {
            let worker = state.worker(worker, Instant::now());
            worker.is_there(Instant::now());
            worker.unhealthy = false;
        });
        LongPoll {
            remote: self.clone(),
            worker: worker.clone(),
            about,
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

/// A worker waits for an answer. If this is dropped before, it did not wait long enough.
struct LongPoll {
    remote: RemoteExecutor,
    worker: WorkerId,
    about: PollKind,
    answered: bool,
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        let (answered, now) = (self.answered, Instant::now());
        let waiting = self.remote.with(|state| {
            let worker = state.worker(&self.worker, now);
            if self.about == PollKind::Jobs {
                worker.has_asked();
            }
            if answered {
                worker.is_there(now)
            } else {
                worker.has_vanished(now)
            }
            state.has_waiting()
        });
        // It may have been woken for a job that it did not take.
        if waiting {
            self.remote.inner.came.notify_one();
        }
    }
}
