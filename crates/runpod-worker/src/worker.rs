//! [`RunpodWorker`]: its loops (poll, stop, ping, concurrency), startup and shutdown.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::health::Health;
use tidegate_core::port::Executor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::codec::{HandlerSemantics, JobCodec};
use crate::execute::{ExecutionContext, PlatformStreaming};
use crate::in_flight::InFlightJobs;
use crate::job_runner::JobRunner;
use crate::journal::{JobStage, Journal, JournaledJob};
use crate::platform_client::PlatformClient;
use crate::platform_urls::OutputDelivery;
use crate::poll::JobPoller;
use crate::wire;

/// How often the concurrency of the model is checked.
const CONCURRENCY_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How often the health of the model is checked.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a response that stops no job.
const STOP_POLL_PAUSE: Duration = Duration::from_secs(1);
/// How long results are still delivered after the model is defunct.
const DEFUNCT_DRAIN: Duration = Duration::from_secs(30);
/// How often a job is started before it is assumed to kill its worker.
const MAX_STARTS: u32 = 2;

/// What to do with a job that was running when the worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterruptedJob {
    /// Run it again, once, unless the platform already has parts of its output.
    Retry,
    /// Report it as failed.
    Fail,
}

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct Config {
    /// The time between two pings.
    pub ping_interval: Duration,
    /// How the model's outputs are interpreted.
    pub semantics: HandlerSemantics,
    /// What to do with jobs that were running when the previous worker process died.
    pub on_interrupted: OnInterruptedJob,
    /// The most time that the model may spend on a job.
    pub job_timeout: Option<Duration>,
}

/// Why a worker exits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// Shutdown was requested.
    Requested,
    /// The worker is to be replaced.
    Refresh,
    /// The model is defunct.
    ModelDefunct(String),
}

/// A worker for one platform.
pub struct RunpodWorker {
    runner: Arc<JobRunner>,
    options: Config,
    tasks: TaskTracker,
    /// Canceled when the worker takes no more jobs.
    stop_polling: CancellationToken,
    /// Canceled when all tasks end.
    shutdown: CancellationToken,
}

/// The dependencies of a worker.
pub struct WorkerDeps {
    /// Runs the jobs.
    pub executor: Arc<dyn Executor>,
    /// Converts inputs and outputs.
    pub codec: Arc<dyn JobCodec>,
    /// The platform of the jobs.
    pub platform: Arc<PlatformClient>,
    /// Records the jobs for the next worker process.
    pub journal: Journal,
}

impl RunpodWorker {
    /// A worker that has not started.
    pub fn new(parts: WorkerDeps, options: Config) -> Self {
        let WorkerDeps {
            executor,
            codec,
            platform,
            journal,
        } = parts;
        let parts = if platform.accepts_stream() {
            PlatformStreaming::Supported
        } else {
            PlatformStreaming::Unsupported
        };
        let (semantics, job_timeout) = (options.semantics, options.job_timeout);
        let execution = ExecutionContext {
            executor,
            codec,
            journal,
            semantics,
            parts,
            job_timeout,
        };
        let runner = Arc::new(JobRunner {
            execution,
            platform,
            in_flight: InFlightJobs::default(),
        });
        Self {
            runner,
            options,
            tasks: TaskTracker::new(),
            stop_polling: CancellationToken::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Runs until `leave` is canceled or the model is defunct; then finishes its jobs for at most
    /// `drain_timeout`. The journal keeps the unfinished ones. The model must be ready.
    pub async fn run(&self, leave: &CancellationToken, drain_timeout: Duration) -> ExitReason {
        set_limit(&self.runner);
        self.resume();
        for task in [
            BackgroundLoop::Ping,
            BackgroundLoop::Stops,
            BackgroundLoop::Limit,
        ] {
            self.spawn(task);
        }
        let poller = JobPoller::new(
            Arc::clone(&self.runner),
            self.spawner(),
            self.stop_polling.clone(),
        );
        let poller = self.tasks.spawn(poller.run());
        let reason = tokio::select! {
            () = leave.cancelled() => ExitReason::Requested,
            () = self.stop_polling.cancelled() => ExitReason::Refresh,
            error = self.defunct_reason() => ExitReason::ModelDefunct(error),
        };
        self.stop_polling.cancel();
        // A panic in this task was logged, and it does not lose jobs.
        poller.await.ok();
        let drain_timeout = match reason {
            ExitReason::Requested | ExitReason::Refresh => drain_timeout,
            // Unfinished jobs cannot continue; finished results are still delivered.
            ExitReason::ModelDefunct(_) => drain_timeout.min(DEFUNCT_DRAIN),
        };
        if tokio::time::timeout(drain_timeout, self.runner.in_flight.wait_until_empty())
            .await
            .is_err()
        {
            tracing::warn!(jobs = ?self.runner.in_flight.ids(), "unfinished jobs are left to the next worker");
        }
        self.shutdown.cancel();
        reason
    }

    /// Continues the jobs of the previous worker process.
    fn resume(&self) {
        for JournaledJob { job, stage } in self.runner.execution.journal.jobs() {
            let Some(stop) = self.runner.in_flight.add(&job.id) else {
                continue;
            };
            let runner = Arc::clone(&self.runner);
            let lost = match (stage, self.options.on_interrupted) {
                (JobStage::Finished { delivered, body }, _) => {
                    tracing::info!(
                        job = job.id,
                        "delivering the result of a job of the previous worker"
                    );
                    self.spawner()
                        .start(runner.deliver(job.id, stop, delivered, body));
                    continue;
                }
                (JobStage::Taken { starts: 0 }, _) => None,
                (JobStage::Taken { starts }, OnInterruptedJob::Retry) if starts < MAX_STARTS => {
                    None
                }
                (JobStage::Taken { .. }, _) => Some(self.options.semantics.without_stream),
                (JobStage::Streaming, _) => Some(OutputDelivery::Streamed),
            };
            match lost {
                None => {
                    tracing::info!(job = job.id, "running a job of the previous worker");
                    self.spawner().start(runner.run(job, stop));
                }
                Some(delivered) => {
                    tracing::warn!(
                        job = job.id,
                        "job was interrupted when the previous worker died"
                    );
                    let body = wire::failure("the worker died while it ran the job");
                    self.runner
                        .execution
                        .journal
                        .record_finished(&job.id, delivered, &body);
                    self.spawner()
                        .start(runner.deliver(job.id, stop, delivered, body));
                }
            }
        }
    }

    fn spawn(&self, which: BackgroundLoop) {
        let (runner, every) = (Arc::clone(&self.runner), self.options.ping_interval);
        self.spawner().start(async move {
            match which {
                BackgroundLoop::Ping => pings(&runner, every).await,
                BackgroundLoop::Stops => stops(&runner).await,
                BackgroundLoop::Limit => limits(&runner).await,
            }
        });
    }

    fn spawner(&self) -> TaskSpawner {
        TaskSpawner {
            tasks: self.tasks.clone(),
            shutdown: self.shutdown.clone(),
        }
    }

    /// Waits until the model is defunct and returns the reason.
    async fn defunct_reason(&self) -> String {
        loop {
            let report = self.runner.execution.executor.report();
            if matches!(report.health, Health::SetupFailed | Health::Defunct) {
                return report
                    .health_error
                    .unwrap_or_else(|| "the model is defunct".to_owned());
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }
}

impl Drop for RunpodWorker {
    /// Stops the reports of unfinished jobs: their model is about to exit, which would look like a
    /// crash.
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Spawns tasks that end with the worker. The journal keeps the jobs of interrupted tasks.
#[derive(Clone)]
pub(crate) struct TaskSpawner {
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl TaskSpawner {
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.tasks
            .spawn(async move { shutdown.run_until_cancelled(task).await });
    }
}

enum BackgroundLoop {
    Ping,
    Stops,
    Limit,
}

async fn limits(runner: &JobRunner) {
    loop {
        tokio::select! {
            () = runner.execution.executor.desired_concurrency_changed() => {}
            // A replaced child may have another number of slots.
            () = tokio::time::sleep(CONCURRENCY_CHECK_INTERVAL) => {}
        }
        set_limit(runner);
    }
}

/// Sets the limit to the concurrency that the model's code wants, at most its slots. While the child is
/// replaced, the limit stays.
fn set_limit(runner: &JobRunner) {
    match (
        runner.execution.executor.pool_status().slots,
        runner.execution.executor.desired_concurrency(),
    ) {
        (0, _) => {}
        (slots, desired) => runner
            .in_flight
            .set_limit(desired.unwrap_or(slots).min(slots)),
    }
}

async fn pings(runner: &JobRunner, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(reason) = runner
            .platform
            .ping(
                &runner.in_flight.ids(),
                every.max(Duration::from_secs(1)) * 2,
            )
            .await
        {
            tracing::warn!(reason, "failed to send ping");
        }
    }
}

async fn stops(runner: &JobRunner) {
    if !runner.platform.supports_stops() {
        return tracing::warn!(
            "RUNPOD_WEBHOOK_GET_JOB has no `/job-take/`, so the platform cannot stop jobs"
        );
    }
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
    loop {
        match runner.platform.stops().await {
            Ok(ids) => {
                backoff.succeed();
                let stopped = ids.iter().filter(|id| runner.in_flight.stop(id)).count();
                if stopped == 0 {
                    tokio::time::sleep(STOP_POLL_PAUSE).await;
                }
            }
            Err(reason) => {
                let pause = backoff.fail();
                tracing::warn!(reason, ?pause, "failed to fetch jobs to stop, retrying");
                tokio::time::sleep(pause).await;
            }
        }
    }
}
