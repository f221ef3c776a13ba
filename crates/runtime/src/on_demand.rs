//! A model that is loaded when a job needs it, and unloaded when it is idle or when another model
//! needs its load permit ([`idle_unload`]).
//!
//! Jobs do not notice: a job that arrives while the model is unloaded waits until it is loaded.

mod idle_unload;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tempfile::TempDir;
use tidegate_core::health::{Health, HealthReport, LoadSpan};
use tidegate_core::pool_status::{PoolStatus, SlotCounts};
use tidegate_core::port::{Admission, Admitted, BoxFuture, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::load_limit::{Evictable, LoadLimit, LoadPermit};
use crate::runtime::Runtime;

/// The first job after this time loads a model again whose setup failed.
const SETUP_RETRY_AFTER: Duration = Duration::from_secs(10);

/// The pause after the processes of a model could not be started.
const START_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Starts to load a model. The error goes to the log; the next job tries again.
pub type LoadFn = Box<dyn Fn() -> BoxFuture<Result<StartedModel, String>> + Send + Sync>;

/// A model whose children were started.
pub struct StartedModel {
    /// Runs the model.
    pub runtime: Runtime,
    /// The files that the model needs; removed after the model is unloaded.
    pub workdir: Option<TempDir>,
}

/// A model that is loaded on demand. Clones share one model.
#[derive(Clone)]
pub struct OnDemand {
    inner: Arc<Inner>,
}

struct Inner {
    start: LoadFn,
    schema: Arc<Bytes>,
    /// The model is unloaded after this time without jobs.
    idle_timeout: Option<Duration>,
    load_limit: LoadLimit,
    loaded: ArcSwapOption<LoadedModel>,
    /// Held by the caller that loads the model; other callers wait for it.
    loading: tokio::sync::Mutex<()>,
    last_used: Mutex<Instant>,
    /// The next sequence number of a job. Jobs that wait for a load join the model's queue in the
    /// order in which their tasks wake up; the sequence number restores the order of arrival.
    next_sequence: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The model while it is loaded.
struct LoadedModel {
    runtime: Runtime,
    /// Released when the model is unloaded, although other tasks may still hold this struct.
    resources: Mutex<Option<(LoadPermit, Option<TempDir>)>>,
}

impl OnDemand {
    /// A model with a known schema. `start` loads it later, for the first job.
    pub fn new(
        schema: Bytes,
        idle_timeout: Option<Duration>,
        load_limit: LoadLimit,
        start: LoadFn,
    ) -> Self {
        let inner = Arc::new(Inner {
            start,
            schema: Arc::new(schema),
            idle_timeout,
            load_limit,
            loaded: ArcSwapOption::empty(),
            loading: tokio::sync::Mutex::new(()),
            last_used: Mutex::new(Instant::now()),
            next_sequence: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner
            .load_limit
            .register(Arc::downgrade(&inner) as Weak<dyn Evictable>);
        Self { inner }
    }

    /// Loads the model if necessary and waits for a slot, without a time limit.
    fn load_and_wait(
        &self,
        account: Account,
        sequence: u64,
    ) -> BoxFuture<Result<Box<dyn Admission>, Refusal>> {
        let this = self.clone();
        Box::pin(async move {
            loop {
                let loaded = this.inner.load().await?;
                let admitted = match loaded.runtime.admit_with_sequence(
                    &account,
                    WaitPolicy::Unbounded,
                    sequence,
                ) {
                    Ok(Admitted::Now(admission)) => Ok(admission),
                    Ok(Admitted::Queued(admission)) => admission.await,
                    Err(refusal) => Err(refusal),
                };
                match admitted {
                    Err(_)
                        if !this.inner.is_current(&loaded) && !this.inner.stop.is_cancelled() => {}
                    admitted => return admitted,
                }
            }
        })
    }
}

impl Inner {
    fn touch(&self) {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_current(&self, loaded: &Arc<LoadedModel>) -> bool {
        self.loaded
            .load()
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, loaded))
    }

    /// Returns the loaded model; loads it first if necessary.
    async fn load(self: &Arc<Self>) -> Result<Arc<LoadedModel>, Refusal> {
        let _loading = self.loading.lock().await;
        if let Some(loaded) = self.loaded.load_full() {
            if !loaded.may_retry_setup() {
                return Ok(loaded);
            }
            self.unload(loaded).await;
        }
        let not_ready = || Refusal::NotReady {
            health: Health::Unknown,
        };
        let permit = self
            .stop
            .run_until_cancelled(self.load_limit.acquire())
            .await
            .ok_or_else(not_ready)?;
        let StartedModel { runtime, workdir } = match (self.start)().await {
            Ok(started) => started,
            Err(error) => {
                tracing::error!(error, "failed to start model, retrying");
                self.stop
                    .run_until_cancelled(tokio::time::sleep(START_RETRY_PAUSE))
                    .await;
                return Err(not_ready());
            }
        };
        let loaded = Arc::new(LoadedModel {
            runtime,
            resources: Mutex::new(Some((permit, workdir))),
        });
        self.loaded.store(Some(Arc::clone(&loaded)));
        if self.stop.is_cancelled() {
            // `stop` may have read `loaded` before the model was stored there.
            loaded.stop().await;
            return Err(not_ready());
        }
        self.touch();
        if let Some(idle_timeout) = self.idle_timeout {
            self.tasks
                .spawn(Arc::clone(self).unload_when_idle(Arc::clone(&loaded), idle_timeout));
        }
        Ok(loaded)
    }
}

impl LoadedModel {
    /// Whether the setup still runs. A model that is unloaded during its setup was loaded for
    /// nothing, and models with a long setup would evict each other forever.
    fn is_loading(&self) -> bool {
        matches!(self.runtime.health(), Health::Starting | Health::Unknown)
    }

    /// Whether the setup failed, and long enough ago to try it again.
    fn may_retry_setup(&self) -> bool {
        if self.runtime.health() != Health::SetupFailed {
            return false;
        }
        let failed_at = self
            .runtime
            .report()
            .setup
            .and_then(|setup| setup.completed_at);
        failed_at.is_some_and(|at| {
            Timestamp::now().duration_since(at).unsigned_abs() >= SETUP_RETRY_AFTER
        })
    }
}

#[async_trait]
impl Executor for OnDemand {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        self.inner.touch();
        let sequence = self.inner.next_sequence.fetch_add(1, Ordering::Relaxed);
        let Some(loaded) = self
            .inner
            .loaded
            .load_full()
            .filter(|loaded| !loaded.may_retry_setup())
        else {
            return match wait {
                WaitPolicy::NoWait => Err(Refusal::AtCapacity),
                WaitPolicy::Bounded | WaitPolicy::Unbounded => Ok(Admitted::Queued(
                    self.load_and_wait(account.clone(), sequence),
                )),
            };
        };
        if wait == WaitPolicy::NoWait {
            return loaded.runtime.admit_with_sequence(account, wait, sequence);
        }
        // A job that arrives during the setup waits until the setup is complete.
        let wait = if loaded.runtime.health() == Health::Starting {
            WaitPolicy::Unbounded
        } else {
            wait
        };
        match loaded.runtime.admit_with_sequence(account, wait, sequence) {
            Ok(Admitted::Queued(admission)) => {
                let (this, account) = (self.clone(), account.clone());
                Ok(Admitted::Queued(Box::pin(async move {
                    match admission.await {
                        Err(_) if !this.inner.is_current(&loaded) => {
                            this.load_and_wait(account, sequence).await
                        }
                        admitted => admitted,
                    }
                })))
            }
            Err(_) if !self.inner.is_current(&loaded) => Ok(Admitted::Queued(
                self.load_and_wait(account.clone(), sequence),
            )),
            admitted => admitted,
        }
    }

    fn accepts(&self) -> Result<(), Refusal> {
        match self
            .inner
            .loaded
            .load_full()
            .filter(|loaded| !loaded.may_retry_setup())
        {
            Some(loaded) => match loaded.runtime.accepts() {
                // The model was unloaded meanwhile; it is loaded again for the next job.
                Err(_) if !self.inner.is_current(&loaded) => Ok(()),
                accepts => accepts,
            },
            None => Ok(()),
        }
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        // The schema of a loaded model is preferred: a script may define more when it runs than
        // its source shows.
        let loaded = self.inner.loaded.load();
        let schema = loaded.as_ref().and_then(|loaded| loaded.runtime.schema());
        Some(schema.unwrap_or_else(|| Arc::clone(&self.inner.schema)))
    }

    fn report(&self) -> HealthReport {
        match self.inner.loaded.load().as_ref() {
            Some(loaded) => loaded.runtime.report(),
            // An unloaded model accepts jobs, so it is ready.
            None => HealthReport {
                health: Health::Ready,
                setup: None,
                health_error: None,
                python: None,
                sdk: None,
            },
        }
    }

    async fn check(&self) -> HealthReport {
        match self.inner.loaded.load_full() {
            Some(loaded) => loaded.runtime.check().await,
            None => self.report(),
        }
    }

    fn last_load(&self) -> Option<LoadSpan> {
        self.inner.loaded.load().as_ref()?.runtime.last_load()
    }

    fn pool_status(&self) -> PoolStatus {
        self.inner
            .loaded
            .load()
            .as_ref()
            .map(|loaded| loaded.runtime.pool_status())
            .unwrap_or(PoolStatus {
                wanted: Some(0),
                ..PoolStatus::default()
            })
    }

    fn slot_counts(&self) -> SlotCounts {
        let loaded = self.inner.loaded.load();
        let counts = loaded.as_ref().map(|loaded| loaded.runtime.slot_counts());
        counts.unwrap_or_default()
    }

    async fn stop(&self) {
        self.inner.stop.cancel();
        if let Some(loaded) = self.inner.loaded.load_full() {
            loaded.stop().await;
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}
