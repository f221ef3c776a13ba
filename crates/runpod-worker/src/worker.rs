//! The loops of a worker: take, stop, ping, and how many at once; and how they begin and end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::health::Health;
use tidegate_core::port::Executor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::codec::{HandlerSemantics, JobCodec};
use crate::execute::{ExecutionContext, StreamSupport};
use crate::in_flight::InFlightJobs;
use crate::job_runner::JobRunner;
use crate::journal::{JobStage, Journal, JournaledJob};
use crate::platform_client::PlatformClient;
use crate::platform_urls::OutputDelivery;
use crate::poll::JobPoller;
use crate::wire;

/// How often is looked how many jobs the model can run at once.
const LIMIT_EVERY: Duration = Duration::from_millis(200);
/// How often is looked whether the model still works.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after an answer that stops nothing.
const STOPS_AGAIN: Duration = Duration::from_secs(1);
/// How long results are still brought when the model is broken.
const LAST_RESULTS: Duration = Duration::from_secs(30);
/// How often a job is given to the model before it is held for what kills its worker.
const MOST_BEGINNINGS: u32 = 2;

/// What becomes of a job that the model worked on when the worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInterruptedJob {
    /// It is run again, once, unless parts of its output are with the platform already.
    Retry,
    /// It has failed.
    Fail,
}

/// How the worker behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// The time between two signs of life.
    pub ping_interval: Duration,
    /// What the model's code means by what it does.
    pub semantics: HandlerSemantics,
    /// What becomes of jobs that a worker before this one has lost.
    pub on_interrupted: OnInterruptedJob,
    /// How long the model may work on one job.
    pub job_timeout: Option<Duration>,
}

/// Why a worker has no more to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// It was told to end.
    Requested,
    /// It wants to be replaced.
    Refresh,
    /// The model does not work any more.
    ModelDefunct(String),
}

/// A worker for one platform.
pub struct RunpodWorker {
    runner: Arc<JobRunner>,
    options: Config,
    tasks: TaskTracker,
    /// No more jobs.
    enough: CancellationToken,
    /// No more of anything.
    over: CancellationToken,
}

/// What a worker is made of.
pub struct WorkerDeps {
    /// Who runs the jobs.
    pub executor: Arc<dyn Executor>,
    /// Who carries them.
    pub codec: Arc<dyn JobCodec>,
    /// Where they come from.
    pub platform: Arc<PlatformClient>,
    /// Where they are written down.
    pub journal: Journal,
}

impl RunpodWorker {
    /// A worker that does nothing yet.
    pub fn new(parts: WorkerDeps, options: Config) -> Self {
        let WorkerDeps {
            executor,
            codec,
            platform,
            journal,
        } = parts;
        let parts = if platform.accepts_stream() {
            StreamSupport::Supported
        } else {
            StreamSupport::Unsupported
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
            enough: CancellationToken::new(),
            over: CancellationToken::new(),
        }
    }

    /// Works until `leave` is canceled or the model is broken; then what is in hand is brought to its end, for at most
    /// `patience`. What is not, is in the journal. The model must be ready.
    pub async fn run(&self, leave: &CancellationToken, patience: Duration) -> ExitReason {
        set_limit(&self.runner);
        self.resume();
        for task in [
            BackgroundLoop::Ping,
            BackgroundLoop::Stops,
            BackgroundLoop::Limit,
        ] {
            self.spawn(task);
        }
        let takes = JobPoller::new(
            Arc::clone(&self.runner),
            self.starter(),
            self.enough.clone(),
        );
        let takes = self.tasks.spawn(takes.run());
        let over = tokio::select! {
            () = leave.cancelled() => ExitReason::Requested,
            () = self.enough.cancelled() => ExitReason::Refresh,
            reason = self.broken() => ExitReason::ModelDefunct(reason),
        };
        self.enough.cancel();
        // A panic in it has been told, and the jobs in hand are not lost by it.
        takes.await.ok();
        let patience = match over {
            ExitReason::Requested | ExitReason::Refresh => patience,
            // Nobody works on what is not over yet; results are still brought.
            ExitReason::ModelDefunct(_) => patience.min(LAST_RESULTS),
        };
        if tokio::time::timeout(patience, self.runner.in_flight.empty())
            .await
            .is_err()
        {
            tracing::warn!(jobs = ?self.runner.in_flight.ids(), "these jobs are left to the next worker");
        }
        self.over.cancel();
        over
    }

    /// What a worker before this one has left.
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
                        "the result of a worker before this one is brought"
                    );
                    self.starter()
                        .start(runner.bring(job.id, stop, delivered, body));
                    continue;
                }
                (JobStage::Taken { starts: 0 }, _) => None,
                (JobStage::Taken { starts }, OnInterruptedJob::Retry)
                    if starts < MOST_BEGINNINGS =>
                {
                    None
                }
                (JobStage::Taken { .. }, _) => Some(self.options.semantics.without_stream),
                (JobStage::Streaming, _) => Some(OutputDelivery::Streamed),
            };
            match lost {
                None => {
                    tracing::info!(job = job.id, "a job of a worker before this one is run");
                    self.starter().start(runner.run(job, stop));
                }
                Some(delivered) => {
                    tracing::warn!(
                        job = job.id,
                        "a job was lost with the worker before this one"
                    );
                    let body = wire::failure("the worker died while it worked on the job");
                    self.runner
                        .execution
                        .journal
                        .record_finished(&job.id, delivered, &body);
                    self.starter()
                        .start(runner.bring(job.id, stop, delivered, body));
                }
            }
        }
    }

    fn spawn(&self, which: BackgroundLoop) {
        let (runner, every) = (Arc::clone(&self.runner), self.options.ping_interval);
        self.starter().start(async move {
            match which {
                BackgroundLoop::Ping => pings(&runner, every).await,
                BackgroundLoop::Stops => stops(&runner).await,
                BackgroundLoop::Limit => limits(&runner).await,
            }
        });
    }

    fn starter(&self) -> TaskSpawner {
        TaskSpawner {
            tasks: self.tasks.clone(),
            over: self.over.clone(),
        }
    }

    /// Waits until the model is given up.
    async fn broken(&self) -> String {
        loop {
            let report = self.runner.execution.executor.report();
            if matches!(report.health, Health::SetupFailed | Health::Defunct) {
                return report
                    .health_error
                    .unwrap_or_else(|| "the model does not work any more".to_owned());
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }
}

impl Drop for RunpodWorker {
    /// Jobs that are left to the next worker say nothing more: their model is about to be ended, which would look
    /// like a crash.
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Starts what lasts no longer than the worker. What is cut off by its end is in the journal.
#[derive(Clone)]
pub(crate) struct TaskSpawner {
    tasks: TaskTracker,
    over: CancellationToken,
}

impl TaskSpawner {
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.over.clone();
        self.tasks
            .spawn(async move { over.run_until_cancelled(task).await });
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
            // A child that takes another one's place may have other slots.
            () = tokio::time::sleep(LIMIT_EVERY) => {}
        }
        set_limit(runner);
    }
}

/// As many as the model's code wants, and never more than it can run. While its child is being replaced, what that
/// could do the next one can.
fn set_limit(runner: &JobRunner) {
    match (
        runner.execution.executor.pool_status().slots,
        runner.execution.executor.desired_concurrency(),
    ) {
        (0, _) => {}
        (slots, wanted) => runner
            .in_flight
            .set_limit(wanted.unwrap_or(slots).min(slots)),
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
            tracing::warn!(reason, "the platform did not take a sign of life");
        }
    }
}

async fn stops(runner: &JobRunner) {
    if !runner.platform.supports_stops() {
        return tracing::warn!(
            "RUNPOD_WEBHOOK_GET_JOB has no `/job-take/`, so the platform cannot stop jobs"
        );
    }
    let mut trouble = Backoff::new(Duration::from_secs(1), Duration::from_secs(15));
    loop {
        match runner.platform.stops().await {
            Ok(ids) => {
                trouble.succeed();
                let stopped = ids.iter().filter(|id| runner.in_flight.stop(id)).count();
                if stopped == 0 {
                    tokio::time::sleep(STOPS_AGAIN).await;
                }
            }
            Err(reason) => {
                let pause = trouble.fail();
                tracing::warn!(
                    reason,
                    ?pause,
                    "the platform did not say which jobs to stop; it is asked again"
                );
                tokio::time::sleep(pause).await;
            }
        }
    }
}
