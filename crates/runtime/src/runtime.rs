//! The runtime's handle: what the rest of the house sees of a model.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::launch::{LaunchConfig, Observer};
use crate::leftovers::Family;
use crate::parent::courier::{Courier, Seat, SlotPermit};
use crate::scratch::Scratch;
use crate::slots::{Denied, Joined, LineLimit, Pool};
use crate::state::State;
use crate::supervisor::{self, Shared};

/// How long the server waits for the user's health check, which has a limit of its own in the child.
const HEALTHCHECK_LIMIT: Duration = Duration::from_secs(10);
/// How long somebody who asks is kept waiting for a check that runs. Whoever probes a server gives up
/// after a second and takes it for dead.
const ANSWER_WITHIN: Duration = Duration::from_millis(600);
/// How often is looked whether the last job is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A model and its children. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
    /// The health check that runs now, so that many callers make one.
    checks: Arc<Mutex<Checks>>,
}

/// The model's own health checks.
#[derive(Default)]
struct Checks {
    running: Option<watch::Receiver<Option<Checked>>>,
    /// What the last one that came to its end has found.
    last: Checked,
}

/// What a health check has found.
#[derive(Clone, Default)]
struct Checked {
    health_error: Option<String>,
}

impl Runtime {
    /// Starts the children. They are ready some time later; [`Executor::report`] tells.
    pub fn start(launch: LaunchConfig, scratch: Scratch, observer: Arc<dyn Observer>) -> Self {
        let workers = launch.children.max(1);
        let shared = Arc::new(Shared {
            pool: Pool::new(launch.queue_limit),
            state: State::new(workers),
            scratch,
            family: Family::of_process(),
            observer,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            launch,
        });
        shared.tasks.spawn(supervisor::tidy(Arc::clone(&shared)));
        for worker in 0..workers {
            shared
                .tasks
                .spawn(supervisor::keep(Arc::clone(&shared), worker));
        }
        Self {
            shared,
            checks: Arc::default(),
        }
    }

    /// Ends the children when the jobs that they work on are over. No other job is taken.
    pub(crate) async fn leave(&self) {
        self.shared.pool.close();
        while self.shared.pool.count().total > 0 && !self.shared.stop.is_cancelled() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.stop().await;
    }

    /// How it is, in one word.
    pub(crate) fn health(&self) -> Health {
        self.shared.state.health(|| self.shared.pool.count())
    }

    /// Whether it is there and has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        let count = self.shared.pool.count();
        let starting = matches!(
            self.shared.state.health(|| count),
            Health::Starting | Health::Unknown
        );
        !starting && count.waiting == 0 && count.idle == count.total
    }

    fn admission(&self, permit: SlotPermit) -> Box<dyn Admission> {
        let shared = &self.shared;
        Box::new(Courier {
            permit,
            cancel_grace: shared.launch.cancel_grace,
            tasks: shared.tasks.clone(),
            scratch: shared.scratch.clone(),
        })
    }

    /// A permit whose child lives.
    fn try_take(&self) -> Option<SlotPermit> {
        loop {
            let mut permit = self.shared.pool.try_take()?;
            if !permit.slot().child.is_dead() {
                return Some(permit);
            }
            permit.poison();
        }
    }

    /// As [`Executor::admit`]. In the line of its account, a lower number goes first, whenever it comes.
    pub(crate) fn admit_numbered(
        &self,
        account: &Account,
        wait: WaitPolicy,
        number: u64,
    ) -> Result<Admitted, Refusal> {
        if self.shared.state.is_open()
            && let Some(permit) = self.try_take()
        {
            return Ok(Admitted::Now(self.admission(permit)));
        }
        match self.shared.state.health(|| self.shared.pool.count()) {
            Health::Ready | Health::Busy if wait == WaitPolicy::NoWait => Err(Refusal::AtCapacity),
            Health::Ready | Health::Busy | Health::Starting | Health::Unknown
                if wait == WaitPolicy::Unbounded =>
            {
                self.join_line(account, LineLimit::None, number)
            }
            Health::Ready | Health::Busy => self.join_line(account, LineLimit::Usual, number),
            health @ (Health::Unknown
            | Health::Starting
            | Health::SetupFailed
            | Health::Defunct) => Err(Refusal::NotReady { health }),
        }
    }

    fn join_line(
        &self,
        account: &Account,
        limit: LineLimit,
        number: u64,
    ) -> Result<Admitted, Refusal> {
        let (tx, rx) = oneshot::channel();
        match self.shared.pool.join(
            Seat {
                account: account.clone(),
                number,
                permit: tx,
            },
            limit,
        ) {
            Ok(Joined::Now(permit)) => Ok(Admitted::Now(self.admission(permit))),
            Ok(Joined::Waits) => {
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
            Err(Denied::Full) => Err(Refusal::AtCapacity),
            Err(Denied::Closed) => Err(Refusal::NotReady {
                health: self.report().health,
            }),
        }
    }

    /// Starts a health check or joins the one that runs. It runs by itself, so that whoever leaves early
    /// does not leave a half-done check for the next to find.
    fn join_check(&self) -> watch::Receiver<Option<Checked>> {
        let mut checks = self.checks();
        if let Some(check) = &checks.running {
            return check.clone();
        }
        let (answer, check) = watch::channel(None);
        checks.running = Some(check.clone());
        let runtime = self.clone();
        self.shared.tasks.spawn(async move {
            let checked = Checked {
                health_error: runtime.ask_children().await,
            };
            *runtime.checks() = Checks {
                running: None,
                last: checked.clone(),
            };
            // Nobody may be left to hear it.
            answer.send(Some(checked)).ok();
        });
        check
    }

    fn checks(&self) -> std::sync::MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_children(&self) -> Option<String> {
        let children = self.shared.state.checkable();
        let all = futures_util::future::join_all(children.iter().map(|child| child.healthcheck()));
        match tokio::time::timeout(HEALTHCHECK_LIMIT, all).await {
            // A child that died meanwhile is not unwell but gone, which the health itself says.
            Ok(answers) => answers.into_iter().flatten().flatten().next(),
            Err(_) => Some("Healthcheck failed: healthcheck timed out".to_owned()),
        }
    }
}

#[async_trait]
impl Executor for Runtime {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        self.admit_numbered(account, wait, 0)
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
            .each_idle(|link| idle.push(link.child.pid()));
        PoolStatus {
            slots: count.total,
            free: count.idle,
            ..self.shared.state.pool_status(&idle)
        }
    }

    async fn check(&self) -> HealthReport {
        let mut report = self.report();
        if matches!(report.health, Health::Ready | Health::Busy)
            && !self.shared.state.checkable().is_empty()
        {
            let mut check = self.join_check();
            let checked =
                match tokio::time::timeout(ANSWER_WITHIN, check.wait_for(Option::is_some)).await {
                    Ok(checked) => checked.ok().and_then(|checked| checked.clone()),
                    Err(_) => None,
                };
            // A check that takes its time is told when it is over; until then the one before counts.
            report.health_error = checked
                .unwrap_or_else(|| self.checks().last.clone())
                .health_error;
        }
        report
    }

    /// The children are asked to leave, and killed when they do not.
    async fn stop(&self) {
        self.shared.pool.close();
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}
