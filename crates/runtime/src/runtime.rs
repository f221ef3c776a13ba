//! [`Runtime`]: the executor that runs a model in local child processes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::gpu::{GpuId, GpuUser};
use tidegate_core::health::{Health, HealthReport, LoadSpan};
use tidegate_core::pool_status::{PoolStatus, SlotCounts};
use tidegate_core::port::{Admission, Admitted, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch::{BatchAdmission, Batcher};
use crate::child::courier::Courier;
use crate::child::pool_slot::{KindOfPermit, SlotPermit};
use crate::child::queued_caller::QueuedCaller;
use crate::child_gpus::ChildGpus;
use crate::launch_config::LaunchConfig;
use crate::model_state::ModelState;
use crate::observer::Observer;
use crate::reaper::Reaper;
use crate::scaler::{self, RefusedCallers};
use crate::scratch::Scratch;
use crate::slots::{JoinError, Joined, Pool, QueueLimit};
use crate::spare::{self, SpareHandle};
use crate::supervisor::{self, RuntimeShared};

/// How long the server waits for the model's health check. The child has a shorter limit.
const HEALTHCHECK_LIMIT: Duration = Duration::from_secs(10);
/// How long a caller of [`Executor::check`] waits for a running health check. Health probes commonly
/// time out after one second and then report the server as dead.
const CHECK_REPLY_WITHIN: Duration = Duration::from_millis(600);
/// How often [`Runtime::drain_and_stop`] checks whether the last job has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A model and its child processes. Clones share them.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<RuntimeShared>,
    /// Shared, so that concurrent callers start one health check.
    checks: Arc<Mutex<HealthChecks>>,
}

/// The state of the model's own health checks.
#[derive(Default)]
struct HealthChecks {
    running: Option<watch::Receiver<Option<CheckResult>>>,
    /// The result of the last completed check.
    last: CheckResult,
}

/// The result of a health check.
#[derive(Clone, Default)]
struct CheckResult {
    health_error: Option<String>,
}

impl Runtime {
    /// Starts the children and returns at once; [`Executor::report`] shows when they are ready.
    pub fn start(launch: LaunchConfig, scratch: Scratch, observer: Arc<dyn Observer>) -> Self {
        let children = launch.children.max(1);
        let autoscaling = launch.autoscaling;
        let max_children = autoscaling.map_or(children, |scaling| scaling.max.max(children));
        let (spare, spare_requests) = SpareHandle::new();
        let spare_kind = launch.spare;
        let shared = Arc::new(RuntimeShared {
            spare,
            pool: Pool::new(launch.queue_limit),
            batcher: Arc::new(Batcher::new()),
            state: ModelState::new(children, max_children),
            refused: RefusedCallers::default(),
            scratch,
            reaper: Reaper::global(),
            gpus: ChildGpus::new(launch.gpus.clone(), children),
            observer,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            launch,
        });
        shared
            .tasks
            .spawn(supervisor::reap_loop(Arc::clone(&shared)));
        if let Some(kind) = spare_kind {
            let keeper = spare::keep(Arc::clone(&shared), kind, spare_requests);
            shared.tasks.spawn(keeper);
        }
        match autoscaling {
            Some(autoscaling) => {
                let scaler = scaler::run(Arc::clone(&shared), autoscaling);
                shared.tasks.spawn(scaler);
            }
            None => {
                for child in 0..children {
                    shared
                        .tasks
                        .spawn(supervisor::supervise(Arc::clone(&shared), child));
                }
            }
        }
        Self {
            shared,
            checks: Arc::default(),
        }
    }

    /// Accepts no more jobs, waits until the running jobs have ended, then stops the children.
    pub(crate) async fn drain_and_stop(&self) {
        self.shared.pool.close();
        self.shared.batcher.drain();
        while self.shared.pool.count().total > 0 && !self.shared.stop.is_cancelled() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.stop().await;
    }

    /// The health of the model.
    pub(crate) fn health(&self) -> Health {
        self.shared.state.health(|| self.shared.pool.count())
    }

    /// Whether the model is loaded, runs no job and has no waiting caller.
    pub(crate) fn is_idle(&self) -> bool {
        let count = self.shared.pool.count();
        let starting = matches!(
            self.shared.state.health(|| count),
            Health::Starting | Health::Unknown
        );
        !starting && count.waiting == 0 && count.idle == count.total
    }

    /// Whether a child was given one of these GPUs, and the model is not `requester` itself.
    pub(crate) fn can_give_gpus(&self, gpus: &[GpuId], requester: GpuUser) -> bool {
        self.shared.gpus.user() != Some(requester) && self.shared.state.uses_gpus(gpus)
    }

    /// Whether some children wait for GPUs while others are ready. Two models may wait for each other's.
    pub(crate) fn waits_for_gpus(&self) -> bool {
        self.shared.gpus.is_partial() && self.shared.state.child_count().ready > 0
    }

    fn admission(&self, permit: SlotPermit) -> Box<dyn Admission> {
        let shared = &self.shared;
        match KindOfPermit::from(permit) {
            KindOfPermit::Socket(permit) => Box::new(Courier {
                permit,
                cancel_grace: shared.launch.cancel_grace,
                tasks: shared.tasks.clone(),
                scratch: shared.scratch.clone(),
            }),
            KindOfPermit::BatchPlace(permit) => Box::new(BatchAdmission {
                permit,
                batcher: Arc::clone(&shared.batcher),
                scratch: shared.scratch.clone(),
            }),
        }
    }

    /// Takes a permit for a slot of a living child, if one is free.
    fn try_acquire(&self) -> Option<SlotPermit> {
        loop {
            let mut permit = self.shared.pool.try_acquire()?;
            if !permit.slot().child().is_dead() {
                return Some(permit);
            }
            permit.poison();
        }
    }

    /// Like [`Executor::admit`]. In the queue of an account, the caller with the lowest sequence
    /// number is first, whenever it joined.
    pub(crate) fn admit_with_sequence(
        &self,
        account: &Account,
        wait: WaitPolicy,
        sequence: u64,
    ) -> Result<Admitted, Refusal> {
        if self.shared.state.is_open()
            && let Some(permit) = self.try_acquire()
        {
            return Ok(Admitted::Now(self.admission(permit)));
        }
        match self.shared.state.health(|| self.shared.pool.count()) {
            Health::Ready | Health::Busy if wait == WaitPolicy::NoWait => Err(Refusal::AtCapacity),
            Health::Ready | Health::Busy | Health::Starting | Health::Unknown
                if wait == WaitPolicy::Unbounded =>
            {
                self.join_queue(account, QueueLimit::Unlimited, sequence)
            }
            Health::Ready | Health::Busy => {
                self.join_queue(account, QueueLimit::Configured, sequence)
            }
            health @ (Health::Unknown
            | Health::Starting
            | Health::SetupFailed
            | Health::Defunct) => Err(Refusal::NotReady { health }),
        }
    }

    fn join_queue(
        &self,
        account: &Account,
        limit: QueueLimit,
        sequence: u64,
    ) -> Result<Admitted, Refusal> {
        let (tx, rx) = oneshot::channel();
        match self.shared.pool.join(
            QueuedCaller {
                account: account.clone(),
                sequence,
                permit: tx,
            },
            limit,
        ) {
            Ok(Joined::Granted(permit)) => Ok(Admitted::Now(self.admission(permit))),
            Ok(Joined::Queued) => {
                let runtime = self.clone();
                Ok(Admitted::Queued(Box::pin(async move {
                    match rx.await {
                        Ok(permit) => Ok(runtime.admission(permit)),
                        Err(_) => Err(Refusal::NotReady {
                            health: runtime.report().health,
                        }),
                    }
                })))
            }
            Err(JoinError::QueueFull) => {
                self.shared.refused.count();
                Err(Refusal::AtCapacity)
            }
            Err(JoinError::Closed) => Err(Refusal::NotReady {
                health: self.report().health,
            }),
        }
    }

    /// Starts a health check or joins the running one. The check runs in a task of its own, so that a
    /// caller that leaves early does not abort the check for the others.
    fn join_check(&self) -> watch::Receiver<Option<CheckResult>> {
        let mut checks = self.checks();
        if let Some(check) = &checks.running {
            return check.clone();
        }
        let (answer, check) = watch::channel(None);
        checks.running = Some(check.clone());
        let runtime = self.clone();
        self.shared.tasks.spawn(async move {
            let checked = CheckResult {
                health_error: runtime.check_children().await,
            };
            *runtime.checks() = HealthChecks {
                running: None,
                last: checked.clone(),
            };
            // All callers may have left.
            answer.send(Some(checked)).ok();
        });
        check
    }

    fn checks(&self) -> std::sync::MutexGuard<'_, HealthChecks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check_children(&self) -> Option<String> {
        let children = self.shared.state.checkable();
        let all = futures_util::future::join_all(children.iter().map(|child| child.healthcheck()));
        match tokio::time::timeout(HEALTHCHECK_LIMIT, all).await {
            // A child that died meanwhile is not unhealthy but gone; `health` covers that.
            Ok(answers) => answers.into_iter().flatten().flatten().next(),
            Err(_) => Some("Healthcheck failed: healthcheck timed out".to_owned()),
        }
    }
}

#[async_trait]
impl Executor for Runtime {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        self.admit_with_sequence(account, wait, 0)
    }

    fn accepts(&self) -> Result<(), Refusal> {
        match self.health() {
            Health::Unknown | Health::Starting | Health::Ready | Health::Busy
                if !self.shared.pool.is_closed() =>
            {
                Ok(())
            }
            health => Err(Refusal::NotReady { health }),
        }
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        self.shared.state.schema()
    }

    fn description(&self) -> Option<Arc<Bytes>> {
        self.shared.state.description()
    }

    fn report(&self) -> HealthReport {
        self.shared.state.report(|| self.shared.pool.count())
    }

    fn last_load(&self) -> Option<LoadSpan> {
        self.shared.state.last_load()
    }

    fn desired_concurrency(&self) -> Option<usize> {
        self.shared.state.desired_concurrency()
    }

    async fn desired_concurrency_changed(&self) {
        self.shared
            .state
            .desired_concurrency_changed
            .notified()
            .await;
    }

    fn pool_status(&self) -> PoolStatus {
        let count = self.shared.pool.count();
        let mut idle = Vec::new();
        self.shared
            .pool
            .for_each_idle(|slot| idle.push(slot.child().pid()));
        PoolStatus {
            slots: count.total,
            free: count.idle,
            batches: self.shared.batcher.status(),
            ..self.shared.state.pool_status(&idle)
        }
    }

    fn slot_counts(&self) -> SlotCounts {
        let count = self.shared.pool.count();
        SlotCounts {
            slots: count.total,
            free: count.idle,
        }
    }

    async fn check(&self) -> HealthReport {
        let mut report = self.report();
        if matches!(report.health, Health::Ready | Health::Busy)
            && !self.shared.state.checkable().is_empty()
        {
            let mut check = self.join_check();
            let checked =
                match tokio::time::timeout(CHECK_REPLY_WITHIN, check.wait_for(Option::is_some))
                    .await
                {
                    Ok(checked) => checked.ok().and_then(|checked| checked.clone()),
                    Err(_) => None,
                };
            // While a slow check runs, report the result of the previous one.
            report.health_error = checked
                .unwrap_or_else(|| self.checks().last.clone())
                .health_error;
        }
        report
    }

    /// Asks the children to exit, and kills those that do not exit in time.
    async fn stop(&self) {
        self.shared.pool.close();
        self.shared.stop.cancel();
        self.shared.batcher.close();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.gpus.close().await;
    }
}
