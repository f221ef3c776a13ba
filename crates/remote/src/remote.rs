//! The handle: what the desk and what the workers call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::port::Admission;
use tidegate_core::{Event, JobId, Refusal, Work};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::executor::{Keeping, Seat};
use crate::ledger::{Ledger, Waiting};
use crate::parcel::Parcel;
use crate::reports::{Heard, Report};
use crate::worker::{Count, WorkerId};

/// When a worker is given up, and how often a job is tried.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// A worker that pings and then does not for this long is lost.
    pub ping_within: Duration,
    /// A worker that breaks off a question is lost if it does not come back within this time.
    pub return_within: Duration,
    /// How many workers a job is given to; with the last one it fails.
    pub deliveries: u32,
}

impl Default for Config {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            ping_within: 30 * second,
            return_within: 5 * second,
            deliveries: 3,
        }
    }
}

/// How long a question about jobs to stop is left open.
#[derive(Debug, Clone, Copy)]
pub struct Holds {
    /// While the worker has no job.
    pub idle: Duration,
    /// While it has one: when it breaks off, its worker has died.
    pub busy: Duration,
}

/// Workers elsewhere. Cloning gives another handle.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    ledger: Mutex<Ledger>,
    /// A job has come that a worker can have.
    came: Notify,
    closing: CancellationToken,
}

impl Remote {
    /// No jobs and no workers yet.
    pub fn new(config: Config) -> Self {
        let inner = Inner {
            config,
            ledger: Mutex::default(),
            came: Notify::new(),
            closing: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        f(&mut self
            .inner
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// Jobs for a worker, at most so many; waits for the first. Cancel-safe: a worker that leaves gets none.
    pub async fn take(&self, worker: &WorkerId, most: usize, hold: Duration) -> Vec<Parcel> {
        let mut question = self.question(worker, About::Jobs);
        if self.with(|ledger| ledger.worker(worker, Instant::now()).begins_to_ask()) {
            tracing::warn!(%worker, "two workers seem to have one name, and jobs of one are lost by what the other says; give each its own");
        }
        let until = Instant::now() + hold;
        loop {
            let came = self.inner.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            let (mut parcels, seats) = self.seats(worker, most);
            let tried = !seats.is_empty();
            let rests_until =
                self.with(|ledger| ledger.rests_until.filter(|at| *at > Instant::now()));
            let look_again = rests_until.map_or(until, |at| at.min(until));
            for seat in seats {
                // The job may have been canceled on the way here.
                parcels.extend(seat.await.ok());
            }
            let rests = tokio::select! {
                biased;
                () = std::future::ready(()), if !parcels.is_empty() => true,
                () = self.inner.closing.cancelled() => true,
                () = std::future::ready(()), if tried => false,
                waited = tokio::time::timeout_at(look_again, came) => waited.is_err() && Instant::now() >= until,
            };
            if rests {
                question.answered = true;
                return parcels;
            }
        }
    }

    /// Jobs that wait for another worker, and places for those from the line.
    fn seats(
        &self,
        worker: &WorkerId,
        most: usize,
    ) -> (Vec<Parcel>, Vec<oneshot::Receiver<Parcel>>) {
        let (mut parcels, mut seats) = (Vec::new(), Vec::new());
        self.with(|ledger| {
            if ledger.closed || ledger.rests_until.is_some_and(|at| at > Instant::now()) {
                return;
            }
            while parcels.len() < most
                && let Some((work, delivery)) = ledger.next_again(worker, Instant::now())
            {
                parcels.push(Parcel::new(self.clone(), work, worker.clone(), delivery));
            }
            while parcels.len() + seats.len() < most
                && let Some(waiting) = ledger.line.pop()
            {
                let (parcel, seat) = oneshot::channel();
                let given = waiting.give.send(Seat {
                    remote: self.clone(),
                    worker: worker.clone(),
                    parcel,
                });
                // Whoever left the line needs no place.
                if given.is_ok() {
                    seats.push(seat);
                }
            }
        });
        (parcels, seats)
    }

    /// The jobs that a worker is to stop; waits for one.
    pub async fn stops(&self, worker: &WorkerId, holds: Holds) -> Vec<JobId> {
        let mut question = self.question(worker, About::Stops);
        let (since, stirred) = (
            Instant::now(),
            self.with(|ledger| Arc::clone(&ledger.worker(worker, Instant::now()).stirred)),
        );
        loop {
            let stir = stirred.notified();
            tokio::pin!(stir);
            stir.as_mut().enable();
            let (stops, busy) = self.with(|ledger| {
                let stops = std::mem::take(&mut ledger.worker(worker, Instant::now()).stops);
                (stops, ledger.is_busy(worker))
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
    pub fn hear(&self, worker: &WorkerId, id: &JobId, report: Report) -> Heard {
        let (heard, waiting) = self.with(|ledger| {
            ledger
                .worker(worker, Instant::now())
                .is_there(Instant::now());
            (
                ledger.report(worker, id, report, &self.inner.config),
                ledger.has_waiting(),
            )
        });
        // It may have cost the worker its job.
        if waiting {
            self.inner.came.notify_one();
        }
        heard
    }

    /// A job was canceled before it began here. A worker may have it from a server before this one.
    pub fn unwanted(&self, id: &JobId) {
        self.with(|ledger| ledger.unwanted(id));
    }

    /// A sign of life with the jobs that the worker has; `None` when it does not say which. Says which of them
    /// nobody has begun here: it may have them from a server before this one, and [keeps](Remote::keeping) them.
    pub fn ping(&self, worker: &WorkerId, jobs: Option<&[&str]>) -> Vec<JobId> {
        let now = Instant::now();
        self.with(|ledger| {
            ledger.worker(worker, now).pinged = Some(now);
            ledger.pinged(worker, jobs, now)
        })
    }

    /// A place for a job that a worker has from a server before this one, for so long already.
    pub fn keeping(&self, worker: &WorkerId, before: Duration) -> Box<dyn Admission> {
        Box::new(Keeping {
            remote: self.clone(),
            worker: worker.clone(),
            before,
        })
    }

    /// A worker that is about to ask says that it has no jobs.
    pub fn has_nothing(&self, worker: &WorkerId) {
        self.with(|ledger| ledger.has_nothing(worker, &self.inner.config, Instant::now()));
    }

    /// A worker says that it cannot work.
    pub fn unhealthy(&self, worker: &WorkerId) {
        self.with(|ledger| ledger.worker(worker, Instant::now()).unhealthy = true);
    }

    /// How many workers do what.
    pub fn count(&self) -> Count {
        self.with(|ledger| ledger.count(&self.inner.config, Instant::now()))
    }

    /// The jobs that were begun and wait for another worker.
    pub fn begun_and_waiting(&self) -> Vec<JobId> {
        self.with(|ledger| ledger.begun_and_waiting())
    }

    /// How often a job was given to another worker because the first was lost.
    pub fn retried(&self) -> u64 {
        self.with(|ledger| ledger.retried)
    }

    /// Gives out nothing for a while: workers that have jobs from a server before this one get time to say so.
    pub fn rest(&self, time: Duration) {
        self.with(|ledger| ledger.rests_until = Some(Instant::now() + time));
    }

    /// Whether no more jobs are given out.
    pub fn is_closed(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Gives out no more jobs; questions that are open are answered. Reports are still heard.
    pub fn close(&self) {
        let line = self.with(|ledger| {
            ledger.closed = true;
            std::mem::take(&mut ledger.line)
        });
        drop(line);
        self.inner.closing.cancel();
    }

    pub(crate) fn stand_in_line(&self, waiting: Waiting) -> Result<(), Refusal> {
        self.with(|ledger| {
            if ledger.closed {
                return Err(Refusal::Closing);
            }
            ledger.line.push(waiting);
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
    ) -> Option<Parcel> {
        let delivery = self.with(|ledger| {
            ledger.begin(&work, events, &worker, &self.inner.config, Instant::now())
        })?;
        Some(Parcel::new(self.clone(), work, worker, delivery))
    }

    pub(crate) fn adopt(
        &self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        before: Duration,
    ) {
        self.with(|ledger| ledger.adopt(work, events, worker, before, Instant::now()));
    }

    pub(crate) fn arrived(&self, id: &JobId, delivery: u32) {
        self.with(|ledger| ledger.arrived(id, delivery, Instant::now()));
    }

    pub(crate) fn came_back(&self, id: &JobId, worker: &WorkerId, delivery: u32) {
        if self.with(|ledger| ledger.came_back(id, delivery)) {
            tracing::debug!(job = %id, %worker, "a job did not get to its worker and goes to the next");
            self.inner.came.notify_one();
        }
    }

    pub(crate) fn cancel(&self, id: &JobId) {
        self.with(|ledger| ledger.cancel(id));
    }

    pub(crate) fn look_after(&self, id: &JobId) {
        if self.with(|ledger| ledger.look_after(id, &self.inner.config, Instant::now())) {
            self.inner.came.notify_one();
        }
    }

    fn question(&self, worker: &WorkerId, about: About) -> Question {
        self.with(|ledger| {
            let worker = ledger.worker(worker, Instant::now());
            worker.is_there(Instant::now());
            worker.unhealthy = false;
        });
        Question {
            remote: self.clone(),
            worker: worker.clone(),
            about,
            answered: false,
        }
    }
}

/// What a worker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Jobs,
    Stops,
}

/// A worker waits for an answer. If this is dropped before, it did not wait long enough.
struct Question {
    remote: Remote,
    worker: WorkerId,
    about: About,
    answered: bool,
}

impl Drop for Question {
    fn drop(&mut self) {
        let (answered, now) = (self.answered, Instant::now());
        let waiting = self.remote.with(|ledger| {
            let worker = ledger.worker(&self.worker, now);
            if self.about == About::Jobs {
                worker.has_asked();
            }
            if answered {
                worker.is_there(now)
            } else {
                worker.has_vanished(now)
            }
            ledger.has_waiting()
        });
        // It may have been woken for a job that it did not take.
        if waiting {
            self.remote.inner.came.notify_one();
        }
    }
}
