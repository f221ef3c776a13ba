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

use crate::addresses::{Delivered, Load};
use crate::pace::Pace;
use crate::platform::Asked;
use crate::port::Refresh;
use crate::puller::Starter;
use crate::runner::Runner;
use crate::wire::{self, Job, Taken};

/// Questions that may be open at once.
const OPEN: usize = 2;
/// How long an open question is still listened to when the worker is to end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Answers that say "nothing" sooner than this come from a platform that does not wait, which is not asked at
/// once again.
const TOO_SOON: Duration = Duration::from_millis(50);
/// How often is looked whether a model that was away is back.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Takes {
    pub(crate) runner: Arc<Runner>,
    pub(crate) starter: Starter,
    /// Says that no more jobs are wanted.
    pub(crate) enough: CancellationToken,
    /// After errors.
    pub(crate) trouble: Pace,
    /// After answers that came too soon.
    pub(crate) nothing: Pace,
}

impl Takes {
    pub(crate) fn new(runner: Arc<Runner>, starter: Starter, enough: CancellationToken) -> Self {
        let trouble = Pace::new(Duration::from_millis(500), Duration::from_secs(15));
        let nothing = Pace::new(Duration::from_millis(20), Duration::from_millis(250));
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
    fn answered(&mut self, took: Duration, asked: Asked) -> Duration {
        match asked {
            Asked::Given(taken) => {
                self.trouble.succeed();
                self.nothing.succeed();
                self.take_in(taken);
                Duration::ZERO
            }
            Asked::Nothing => {
                self.trouble.succeed();
                if took < TOO_SOON {
                    self.nothing.fail()
                } else {
                    Duration::ZERO
                }
            }
            Asked::TooMuch(pause) => {
                tracing::warn!(?pause, "the platform says that it is asked too often");
                pause
            }
            Asked::Failed(reason) => {
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

    fn take_in(&self, taken: Taken) {
        let Taken {
            jobs,
            empty,
            nameless,
        } = taken;
        if nameless > 0 {
            tracing::error!(
                count = nameless,
                "the platform handed out something without an id, which nobody can answer"
            );
        }
        for id in empty {
            self.send_back(id);
        }
        for job in jobs {
            self.start(job);
        }
        if self.runner.labour.habits.refresh == Refresh::AfterEachJob
            && !self.runner.hand.is_empty()
        {
            self.enough.cancel();
        }
    }

    fn start(&self, job: Job) {
        let Some(stop) = self.runner.hand.add(&job.id) else {
            return tracing::warn!(
                job = job.id,
                "the platform handed out a job that is in hand already"
            );
        };
        self.runner.labour.journal.taken(&job);
        self.starter.start(Arc::clone(&self.runner).run(job, stop));
    }

    /// A job that nobody can work on gets its answer too.
    fn send_back(&self, id: String) {
        let Some(stop) = self.runner.hand.add(&id) else {
            return;
        };
        tracing::error!(job = id, "the platform handed out a job without `input`");
        let body = wire::failure("the job has no `input`");
        self.starter
            .start(Arc::clone(&self.runner).bring(id, stop, Delivered::AtOnce, body));
    }
}

/// Waits until a job can be worked on and the platform may be asked; says how many.
async fn room(runner: &Runner, not_before: Instant) -> usize {
    tokio::time::sleep_until(not_before).await;
    loop {
        let room = runner.hand.room().await;
        if matches!(
            runner.labour.executor.report().health,
            Health::Ready | Health::Busy
        ) {
            return room;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn ask(runner: &Runner, count: usize) -> (Duration, Asked) {
    let began = Instant::now();
    let _asking = runner.hand.ask(count);
    let load = if runner.hand.is_empty() {
        Load::Idle
    } else {
        Load::Busy
    };
    let asked = runner.platform.take(count, load).await;
    (began.elapsed(), asked)
}
