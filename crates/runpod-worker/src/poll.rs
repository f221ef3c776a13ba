//! Asks the platform for jobs, as many as there is room for.
//!
//! An open question is never taken back, because a job may be on its way with the answer. When room comes up
//! while one is open, a second one is asked beside it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tidegate_core::health::Health;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::codec::Refresh;
use crate::job_runner::JobRunner;
use crate::platform_client::TakeOutcome;
use crate::platform_urls::{OutputDelivery, WorkerLoad};
use crate::wire::{self, Job, TakenJobs};
use crate::worker::TaskSpawner;

/// Questions that may be open at once.
const OPEN: usize = 2;
/// How long an open question is still listened to when the worker is to end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Answers that say "nothing" sooner than this come from a platform that does not wait, which is not asked at
/// once again.
const TOO_SOON: Duration = Duration::from_millis(50);
/// How often is looked whether a model that was away is back.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct JobPoller {
    pub(crate) runner: Arc<JobRunner>,
    pub(crate) starter: TaskSpawner,
    /// Says that no more jobs are wanted.
    pub(crate) enough: CancellationToken,
    /// After errors.
    pub(crate) trouble: Backoff,
    /// After answers that came too soon.
    pub(crate) nothing: Backoff,
}

impl JobPoller {
    pub(crate) fn new(
        runner: Arc<JobRunner>,
        starter: TaskSpawner,
        enough: CancellationToken,
    ) -> Self {
        let trouble = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
        let nothing = Backoff::new(Duration::from_millis(20), Duration::from_millis(250));
        Self {
            runner,
            starter,
            enough,
            trouble,
            nothing,
        }
    }

    pub(crate) async fn run(mut self) {
        let runner = Arc::clone(&self.runner);
        let mut open = FuturesUnordered::new();
        let mut not_before = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = self.enough.cancelled() => break,
                Some((took, asked)) = open.next() => not_before = Instant::now() + self.answered(took, asked),
                room = room(&runner, not_before), if open.len() < OPEN => open.push(ask(&runner, room)),
            }
        }
        let until = Instant::now() + LAST_ANSWERS;
        while let Ok(Some((took, asked))) = tokio::time::timeout_at(until, open.next()).await {
            self.answered(took, asked);
        }
    }

    /// Deals with an answer; says how long to leave the platform alone.
    fn answered(&mut self, took: Duration, asked: TakeOutcome) -> Duration {
        match asked {
            TakeOutcome::Jobs(taken) => {
                self.trouble.succeed();
                self.nothing.succeed();
                self.take_in(taken);
                Duration::ZERO
            }
            TakeOutcome::Empty => {
                self.trouble.succeed();
                if took < TOO_SOON {
                    self.nothing.fail()
                } else {
                    Duration::ZERO
                }
            }
            TakeOutcome::RateLimited(pause) => {
                tracing::warn!(?pause, "the platform says that it is asked too often");
                pause
            }
            TakeOutcome::Failed(reason) => {
                let pause = self.trouble.fail();
                tracing::error!(
                    reason,
                    ?pause,
                    "no jobs could be had; the platform is asked again"
                );
                pause
            }
        }
    }

    fn take_in(&self, taken: TakenJobs) {
        let TakenJobs {
            jobs,
            without_input,
            without_id,
        } = taken;
        if without_id > 0 {
            tracing::error!(
                count = without_id,
                "the platform handed out something without an id, which nobody can answer"
            );
        }
        for id in without_input {
            self.send_back(id);
        }
        for job in jobs {
            self.start(job);
        }
        if self.runner.execution.semantics.refresh == Refresh::AfterEachJob
            && !self.runner.in_flight.is_empty()
        {
            self.enough.cancel();
        }
    }

    fn start(&self, job: Job) {
        let Some(stop) = self.runner.in_flight.add(&job.id) else {
            return tracing::warn!(
                job = job.id,
                "the platform handed out a job that is in hand already"
            );
        };
        self.runner.execution.journal.record_taken(&job);
        self.starter.start(Arc::clone(&self.runner).run(job, stop));
    }

    /// A job that nobody can work on gets its answer too.
    fn send_back(&self, id: String) {
        let Some(stop) = self.runner.in_flight.add(&id) else {
            return;
        };
        tracing::error!(job = id, "the platform handed out a job without `input`");
        let body = wire::failure("the job has no `input`");
        self.starter.start(Arc::clone(&self.runner).bring(
            id,
            stop,
            OutputDelivery::WithResult,
            body,
        ));
    }
}

/// Waits until a job can be worked on and the platform may be asked; says how many.
async fn room(runner: &JobRunner, not_before: Instant) -> usize {
    tokio::time::sleep_until(not_before).await;
    loop {
        let room = runner.in_flight.room().await;
        if matches!(
            runner.execution.executor.report().health,
            Health::Ready | Health::Busy
        ) {
            return room;
        }
        tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
    }
}

async fn ask(runner: &JobRunner, count: usize) -> (Duration, TakeOutcome) {
    let began = Instant::now();
    let _asking = runner.in_flight.ask(count);
    let load = if runner.in_flight.is_empty() {
        WorkerLoad::Idle
    } else {
        WorkerLoad::Busy
    };
    let asked = runner.platform.take(count, load).await;
    (began.elapsed(), asked)
}
