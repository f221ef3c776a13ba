//! [`Director`]: owns the loops of the process, and drains them when it stops.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tidegate_core::clock;
use tidegate_core::director_api::DirectorJobKind;
use tidegate_core::director_metrics::{DirectorMetrics, DirectorState};
use tidegate_core::leases::{Holder, JobRef};
use tidegate_core::live::Live;
use tidegate_core::queue::{Queue, QueueError};
use tidegate_service::ModelRegistry;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api_calls::ApiCalls;
use crate::claims::HeldClaims;
use crate::heartbeat::Assigned;
use crate::held_leases::{AbandonCause, HeldLeases};
use crate::hooks::Hooks;
use crate::offers::ModelOffers;
use crate::trained::TrainedModels;
use crate::version_loop::LoopKey;

/// How long stopped jobs have to be given back after the drain timeout.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a director.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name, which stays the same when the director is started again.
    pub name: String,
    /// The kind of jobs that it takes.
    pub job_kind: DirectorJobKind,
    /// How often messages are renewed.
    pub claim_interval: Duration,
    /// What happens to predictions when the API cannot be reached.
    pub on_isolated: OnIsolated,
    /// When models are loaded.
    pub loading: LoadTiming,
}

/// What happens to the predictions of a director that cannot reach the API for the length of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnIsolated {
    /// They are stopped: another director runs them.
    Stop,
    /// They continue, and may run twice.
    Continue,
}

/// When the models of a director are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadTiming {
    /// At the start, and they stay loaded.
    AtStart,
    /// When a message needs them.
    OnDemand,
}

/// What a director works with.
pub struct DirectorDeps {
    /// The API.
    pub api: Arc<dyn ApiCalls>,
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// The models.
    pub models: ModelRegistry,
    /// Brings requests to stop jobs. Without it, they arrive with the reply to the next heartbeat.
    pub live: Option<Arc<dyn Live>>,
    /// Serves the versions that were trained from the models. Without it, their jobs are not taken.
    pub trained: Option<Arc<dyn TrainedModels>>,
}

/// Why a director ends by itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DirectorError {
    /// Another process uses the name.
    #[error(
        "another director with the name `{name}` has started and took over; give each director its own --name"
    )]
    Superseded {
        /// The name.
        name: String,
    },
    /// The API refused the only model.
    #[error("the API refused the model `{model}`: {reason}")]
    ModelRefused {
        /// The model, `owner/name`.
        model: String,
        /// What is wrong and how to fix it.
        reason: String,
    },
}

/// A director.
pub struct Director {
    inner: Arc<Inner>,
}

/// The state that the loops share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) hooks: Hooks,
    pub(crate) metrics: Arc<DirectorMetrics>,
    pub(crate) holder: Holder,
    pub(crate) api: Arc<dyn ApiCalls>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) models: ModelRegistry,
    live: Option<Arc<dyn Live>>,
    pub(crate) trained: Option<Arc<dyn TrainedModels>>,
    pub(crate) offers: ModelOffers,
    pub(crate) leases: Arc<HeldLeases>,
    pub(crate) claims: Arc<HeldClaims>,
    /// Whether the last heartbeat was replied to.
    pub(crate) connected: watch::Sender<bool>,
    /// The queues of each loop.
    pub(crate) assigned: watch::Sender<Arc<Assigned>>,
    /// The loops that run.
    pub(crate) loops: Mutex<HashSet<LoopKey>>,
    /// Whether no heartbeat was replied to for the length of a lease.
    is_isolated: AtomicBool,
    /// Whether the last read of a queue failed.
    is_queue_down: AtomicBool,
    /// Makes the next heartbeat due.
    pub(crate) heartbeat_now: Notify,
    /// Cancelled when no more messages are taken.
    pub(crate) draining: CancellationToken,
    /// Why the director must end.
    error: OnceLock<DirectorError>,
    failed: CancellationToken,
    /// The loops of versions, and the jobs.
    pub(crate) tasks: TaskTracker,
}

impl Inner {
    pub(crate) fn is_isolated(&self) -> bool {
        self.is_isolated.load(Ordering::SeqCst)
    }

    pub(crate) fn set_isolated(&self, is_isolated: bool) {
        self.is_isolated.store(is_isolated, Ordering::SeqCst);
    }

    /// Stops jobs as soon as the API asks for it, for ever.
    async fn stop_on_request(&self) {
        let Some(live) = &self.live else {
            return std::future::pending().await;
        };
        loop {
            let job = live.stop_requested(&self.holder.name).await;
            self.request_stop(&job);
        }
    }

    /// Asks a job to stop: a cancel is recorded.
    pub(crate) fn request_stop(&self, job: &JobRef) {
        self.models.lookup().request_stop(&job.account, &job.id);
    }

    /// The queue replied to a read.
    pub(crate) fn queue_replied(&self) {
        if self.is_queue_down.swap(false, Ordering::Relaxed) {
            tracing::info!("the queue can be read again");
        }
    }

    /// The queue could not be read.
    pub(crate) fn queue_failed(&self, error: &QueueError) {
        if !self.is_queue_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "failed to read the queue, retrying");
        }
    }

    /// Ends the director.
    pub(crate) fn fail(&self, error: DirectorError) {
        self.error.get_or_init(|| error);
        self.failed.cancel();
    }
}

impl Director {
    /// A director that has not started yet.
    pub fn new(config: Config, deps: DirectorDeps) -> Self {
        Self::with_hooks(config, deps, Hooks::default())
    }

    /// A director that asks hooks about its jobs.
    pub fn with_hooks(config: Config, deps: DirectorDeps, hooks: Hooks) -> Self {
        let DirectorDeps {
            api,
            queue,
            models,
            live,
            trained,
        } = deps;
        let metrics = Arc::<DirectorMetrics>::default();
        let boot = clock::now().as_microsecond();
        let holder = Holder {
            name: config.name.clone(),
            boot: u64::try_from(boot).unwrap_or_default(),
        };
        let inner = Inner {
            hooks,
            offers: ModelOffers::new(models.clone(), config.job_kind),
            config,
            holder,
            api,
            claims: HeldClaims::new(Arc::clone(&queue), Arc::clone(&metrics)),
            metrics,
            queue,
            models,
            live,
            trained,
            leases: Arc::default(),
            connected: watch::Sender::new(false),
            assigned: watch::Sender::default(),
            loops: Mutex::default(),
            is_isolated: AtomicBool::new(false),
            is_queue_down: AtomicBool::new(false),
            heartbeat_now: Notify::new(),
            draining: CancellationToken::new(),
            error: OnceLock::new(),
            failed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The name of the director.
    pub fn name(&self) -> &str {
        &self.inner.holder.name
    }

    /// Whether the API replied to the last heartbeat.
    pub fn is_connected(&self) -> bool {
        *self.inner.connected.borrow()
    }

    /// Whether no heartbeat was replied to for the length of a lease.
    pub fn is_isolated(&self) -> bool {
        self.inner.is_isolated()
    }

    /// The number of jobs that the director runs.
    pub fn running(&self) -> usize {
        self.inner.leases.all().len()
    }

    /// The counters.
    pub fn metrics(&self) -> Arc<DirectorMetrics> {
        Arc::clone(&self.inner.metrics)
    }

    /// What it does now.
    pub fn state(&self) -> DirectorState {
        DirectorState {
            is_connected: self.is_connected(),
            is_isolated: self.is_isolated(),
            leases: self.running(),
            messages: self.inner.claims.count(),
        }
    }

    /// Runs jobs until `stop` is cancelled; then takes no more messages and finishes the jobs that it has,
    /// for up to `drain_timeout`. Jobs that have not ended by then are given to other directors. Returns
    /// whether all jobs ended.
    pub async fn run(
        &self,
        stop: CancellationToken,
        drain_timeout: Duration,
    ) -> Result<bool, DirectorError> {
        let inner = &self.inner;
        let interval = inner.config.claim_interval;
        let background = async {
            tokio::join!(
                inner.send_heartbeats(),
                inner.claims.renew_all(interval),
                inner.stop_on_request(),
            );
        };
        let jobs = async {
            tokio::select! {
                biased;
                () = inner.failed.cancelled() => return Err(self.abort().await),
                () = stop.cancelled() => {}
            }
            tokio::select! {
                biased;
                () = inner.failed.cancelled() => Err(self.abort().await),
                all_ended = self.drain(drain_timeout) => Ok(all_ended),
            }
        };
        let result = tokio::select! {
            biased;
            () = background => unreachable!("the background loops never end"),
            result = jobs => result,
        };
        if result.is_ok() {
            inner.retire().await;
        }
        result
    }

    /// Finishes the jobs; returns whether all ended in time.
    async fn drain(&self, timeout: Duration) -> bool {
        let Inner {
            draining,
            heartbeat_now,
            leases,
            tasks,
            ..
        } = &*self.inner;
        draining.cancel();
        heartbeat_now.notify_one();
        tasks.close();
        tracing::info!(
            jobs = leases.all().len(),
            "stopped taking jobs, finishing those that run"
        );
        if tokio::time::timeout(timeout, tasks.wait()).await.is_ok() {
            return true;
        }
        let left = leases.abandon_all(AbandonCause::Stopping);
        tracing::warn!(
            left,
            ?timeout,
            "stopped jobs that did not end in time, another director runs them"
        );
        tokio::time::timeout(GIVE_BACK_TIMEOUT, tasks.wait())
            .await
            .ok();
        false
    }

    /// Stops everything: the leases are lost.
    async fn abort(&self) -> DirectorError {
        let Inner {
            draining,
            leases,
            tasks,
            error,
            ..
        } = &*self.inner;
        draining.cancel();
        tasks.close();
        leases.abandon_all(AbandonCause::Lost);
        tokio::time::timeout(GIVE_BACK_TIMEOUT, tasks.wait())
            .await
            .ok();
        error.get().expect("it was set before").clone()
    }
}
