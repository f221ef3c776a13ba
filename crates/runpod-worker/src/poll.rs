//! Requests jobs from the platform, up to the worker's capacity.
//!
//! An open request is never canceled, because its response may contain a job. When capacity becomes
//! free while a request is open, a second request is sent; when the concurrency is raised, another one
//! for the difference, however many are open.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tidegate_core::health::Health;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::codec::Refresh;
use crate::in_flight::Capacity;
use crate::job_runner::JobRunner;
use crate::platform_client::TakeOutcome;
use crate::platform_urls::{OutputDelivery, WorkerLoad};
use crate::wire::{self, Job, TakenJobs};
use crate::worker::TaskSpawner;

/// The most open requests, unless the concurrency is raised while they are open.
const MAX_REQUESTS: usize = 2;
/// How long the worker waits for open requests when it shuts down.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(500);
/// An empty response that arrives sooner than this comes from a platform that does not hold requests;
/// the next request is delayed.
const TOO_SOON: Duration = Duration::from_millis(50);
/// How often the health of the model is checked while it is not ready.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct JobPoller {
    pub(crate) runner: Arc<JobRunner>,
    pub(crate) starter: TaskSpawner,
    /// Canceled when the worker takes no more jobs.
    pub(crate) enough: CancellationToken,
    /// After errors.
    pub(crate) error_backoff: Backoff,
    /// After empty responses that came too soon.
    pub(crate) empty_backoff: Backoff,
}

impl JobPoller {
    pub(crate) fn new(
        runner: Arc<JobRunner>,
        starter: TaskSpawner,
        enough: CancellationToken,
    ) -> Self {
        let error_backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
        let empty_backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(250));
        Self {
            runner,
            starter,
            enough,
            error_backoff,
            empty_backoff,
        }
    }

    pub(crate) async fn run(mut self) {
        let runner = Arc::clone(&self.runner);
        let mut open = FuturesUnordered::new();
        let mut not_before = Instant::now();
        // The most concurrent jobs when the last request was sent.
        let mut requested_limit = 0;
        loop {
            let raised_above = (open.len() >= MAX_REQUESTS).then_some(requested_limit);
            tokio::select! {
                biased;
                () = self.enough.cancelled() => break,
                Some((took, outcome)) = open.next() => not_before = Instant::now() + self.handle_response(took, outcome),
                capacity = capacity(&runner, not_before, raised_above) => {
                    requested_limit = capacity.limit;
                    open.push(request_jobs(&runner, capacity.free));
                }
            }
        }
        let until = Instant::now() + SHUTDOWN_WAIT;
        while let Ok(Some((took, outcome))) = tokio::time::timeout_at(until, open.next()).await {
            self.handle_response(took, outcome);
        }
    }

    /// Handles a response. Returns the pause before the next request.
    fn handle_response(&mut self, took: Duration, outcome: TakeOutcome) -> Duration {
        match outcome {
            TakeOutcome::Jobs(taken) => {
                self.error_backoff.succeed();
                self.empty_backoff.succeed();
                self.accept(taken);
                Duration::ZERO
            }
            TakeOutcome::Empty => {
                self.error_backoff.succeed();
                if took < TOO_SOON {
                    self.empty_backoff.fail()
                } else {
                    Duration::ZERO
                }
            }
            TakeOutcome::RateLimited(pause) => {
                tracing::warn!(?pause, "the platform limits the rate of requests");
                pause
            }
            TakeOutcome::Failed(reason) => {
                let pause = self.error_backoff.fail();
                tracing::error!(reason, ?pause, "failed to fetch jobs, retrying");
                pause
            }
        }
    }

    fn accept(&self, taken: TakenJobs) {
        let TakenJobs {
            jobs,
            without_input,
            without_id,
        } = taken;
        if without_id > 0 {
            tracing::error!(
                count = without_id,
                "the platform handed out a job without an id"
            );
        }
        for id in without_input {
            self.fail_job(id);
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
            return tracing::warn!(job = job.id, "the platform handed out a job twice");
        };
        self.runner.execution.journal.record_taken(&job);
        self.starter.start(Arc::clone(&self.runner).run(job, stop));
    }

    /// Fails a job that cannot be run.
    fn fail_job(&self, id: String) {
        let Some(stop) = self.runner.in_flight.add(&id) else {
            return;
        };
        tracing::error!(job = id, "the platform handed out a job without `input`");
        let body = wire::failure("the job has no `input`");
        self.starter.start(Arc::clone(&self.runner).deliver(
            id,
            stop,
            OutputDelivery::WithResult,
            body,
        ));
    }
}

/// Waits for capacity, a healthy model and the end of the pause; with `raised_above`, also until the
/// most concurrent jobs are more than that.
async fn capacity(
    runner: &JobRunner,
    not_before: Instant,
    raised_above: Option<usize>,
) -> Capacity {
    tokio::time::sleep_until(not_before).await;
    loop {
        let capacity = runner.in_flight.capacity(raised_above).await;
        if matches!(
            runner.execution.executor.report().health,
            Health::Ready | Health::Busy
        ) {
            return capacity;
        }
        tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
    }
}

async fn request_jobs(runner: &JobRunner, count: usize) -> (Duration, TakeOutcome) {
    let began = Instant::now();
    let _reservation = runner.in_flight.reserve(count);
    let load = if runner.in_flight.is_empty() {
        WorkerLoad::Idle
    } else {
        WorkerLoad::Busy
    };
    let outcome = runner.platform.take(count, load).await;
    (began.elapsed(), outcome)
}
