//! A model that is loaded when somebody wants it, and leaves when nobody does or another needs its place.
//!
//! Jobs do not notice: who comes while the model is away waits until it is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tempfile::TempDir;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, BoxFuture, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::load_limit::{Berth, Guest, LoadLimit};
use crate::runtime::Runtime;

/// A setup that has failed is tried again by the first who comes after this time.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// The pause after a model could not even be started.
const START_AGAIN: Duration = Duration::from_secs(1);

/// Loads a model. The error is for the log: it is tried again for the next who comes.
pub type LoadFn = Box<dyn Fn() -> BoxFuture<Result<StartedModel, String>> + Send + Sync>;

/// A model that is being loaded.
pub struct StartedModel {
    /// Runs it.
    pub runtime: Runtime,
    /// What it needs on the disk; removed when it has left.
    pub workdir: Option<TempDir>,
}

/// A model on demand. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct OnDemand {
    inner: Arc<Inner>,
}

struct Inner {
    /// Loads the model.
    start: LoadFn,
    schema: Arc<Bytes>,
    /// Nobody wants it for so long: it leaves.
    idle_timeout: Option<Duration>,
    load_limit: LoadLimit,
    loaded: ArcSwapOption<Loaded>,
    /// Whoever loads it; the others wait.
    loading: tokio::sync::Mutex<()>,
    used: Mutex<Instant>,
    /// Jobs in the order in which they came. Those that wait join the line of a model that comes back in
    /// whatever order they wake up.
    numbers: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The model while it is there.
struct Loaded {
    runtime: Runtime,
    /// Its place, and what it has on the disk: given back when it has left, although some still look at it then.
    takes: Mutex<Option<(Berth, Option<TempDir>)>>,
}

impl OnDemand {
    /// A model that `start` can load and whose schema is known. It is not loaded yet.
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
            used: Mutex::new(Instant::now()),
            numbers: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner
            .load_limit
            .welcome(Arc::downgrade(&inner) as Weak<dyn Guest>);
        Self { inner }
    }

    /// A place when the model is there, however long that takes.
    fn waits(
        &self,
        account: Account,
        number: u64,
    ) -> BoxFuture<Result<Box<dyn Admission>, Refusal>> {
        let this = self.clone();
        Box::pin(async move {
            loop {
                let loaded = this.inner.load().await?;
                let admitted =
                    match loaded
                        .runtime
                        .admit_numbered(&account, WaitPolicy::Unbounded, number)
                    {
                        Ok(Admitted::Now(admission)) => Ok(admission),
                        Ok(Admitted::Queued(place)) => place.await,
                        Err(refusal) => Err(refusal),
                    };
                match admitted {
                    Err(_) if !this.inner.is_there(&loaded) && !this.inner.stop.is_cancelled() => {}
                    admitted => return admitted,
                }
            }
        })
    }
}

impl Inner {
    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_there(&self, loaded: &Arc<Loaded>) -> bool {
        self.loaded
            .load()
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, loaded))
    }

    /// The model, loaded by this call if it is not there.
    async fn load(self: &Arc<Self>) -> Result<Arc<Loaded>, Refusal> {
        let _alone = self.loading.lock().await;
        if let Some(loaded) = self.loaded.load_full() {
            if !loaded.has_failed() {
                return Ok(loaded);
            }
            self.unload(loaded).await;
        }
        let gone = || Refusal::NotReady {
            health: Health::Unknown,
        };
        let berth = self
            .stop
            .run_until_cancelled(self.load_limit.take())
            .await
            .ok_or_else(gone)?;
        let StartedModel { runtime, workdir } = match (self.start)().await {
            Ok(started) => started,
            Err(error) => {
                tracing::error!(error, "a model could not be started; it is tried again");
                self.stop
                    .run_until_cancelled(tokio::time::sleep(START_AGAIN))
                    .await;
                return Err(gone());
            }
        };
        let loaded = Arc::new(Loaded {
            runtime,
            takes: Mutex::new(Some((berth, workdir))),
        });
        self.loaded.store(Some(Arc::clone(&loaded)));
        if self.stop.is_cancelled() {
            // Whoever stops us may have looked before it was there.
            loaded.stop().await;
            return Err(gone());
        }
        self.touch();
        if let Some(after) = self.idle_timeout {
            self.tasks
                .spawn(Arc::clone(self).rest(Arc::clone(&loaded), after));
        }
        Ok(loaded)
    }

    /// Lets the model leave when nobody has wanted it for this time.
    async fn rest(self: Arc<Self>, loaded: Arc<Loaded>, after: Duration) {
        let look_every = (after / 10).clamp(Duration::from_millis(20), Duration::from_secs(5));
        while self.is_there(&loaded) {
            if self
                .stop
                .run_until_cancelled(tokio::time::sleep(look_every))
                .await
                .is_none()
            {
                return;
            }
            if !loaded.runtime.is_idle() {
                self.touch();
            } else if self.last_used().elapsed() >= after {
                self.unload(Arc::clone(&loaded)).await;
            }
        }
    }

    /// Lets the model leave. Jobs that it works on are finished; those that wait for it find it gone.
    async fn unload(&self, loaded: Arc<Loaded>) {
        self.loaded
            .compare_and_swap(&Some(Arc::clone(&loaded)), None);
        // A task of its own: who wants the place may stop waiting for it, and the model must be gone before
        // another gets the place all the same.
        let leaving = self.tasks.spawn(async move {
            loaded.runtime.leave().await;
            loaded.give_back();
        });
        if let Err(error) = leaving.await {
            tracing::error!(%error, "a model did not leave as it should");
        }
    }

    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    async fn stop(&self) {
        self.runtime.stop().await;
        self.give_back();
    }

    fn give_back(&self) {
        self.takes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Whether it is not ready yet. Sent away now, it would have been loaded for nothing, and those that take
    /// longer to load than others wait would send each other away for ever.
    fn is_loading(&self) -> bool {
        matches!(self.runtime.health(), Health::Starting | Health::Unknown)
    }

    /// Whether its setup has failed, long enough ago to be tried again.
    fn has_failed(&self) -> bool {
        if self.runtime.health() != Health::SetupFailed {
            return false;
        }
        let failed_at = self
            .runtime
            .report()
            .setup
            .and_then(|setup| setup.completed_at);
        failed_at.is_some_and(|at| Timestamp::now().duration_since(at).unsigned_abs() >= TRY_AGAIN)
    }
}

#[async_trait]
impl Guest for Inner {
    fn idle_since(&self) -> Option<Instant> {
        self.loaded
            .load()
            .as_ref()
            .filter(|loaded| loaded.runtime.is_idle())
            .map(|_| self.last_used())
    }

    fn busy_since(&self) -> Option<Instant> {
        self.loaded
            .load()
            .as_ref()
            .filter(|loaded| !loaded.is_loading())
            .map(|_| self.last_used())
    }

    async fn make_room(&self) {
        if let Some(loaded) = self.loaded.load_full() {
            self.unload(loaded).await;
        }
    }
}

#[async_trait]
impl Executor for OnDemand {
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        self.inner.touch();
        let number = self.inner.numbers.fetch_add(1, Ordering::Relaxed);
        let Some(loaded) = self
            .inner
            .loaded
            .load_full()
            .filter(|loaded| !loaded.has_failed())
        else {
            return match wait {
                WaitPolicy::NoWait => Err(Refusal::AtCapacity),
                WaitPolicy::Bounded | WaitPolicy::Unbounded => {
                    Ok(Admitted::Queued(self.waits(account.clone(), number)))
                }
            };
        };
        if wait == WaitPolicy::NoWait {
            return loaded.runtime.admit_numbered(account, wait, number);
        }
        // Who made it load waits until it has.
        let wait = if loaded.runtime.health() == Health::Starting {
            WaitPolicy::Unbounded
        } else {
            wait
        };
        match loaded.runtime.admit_numbered(account, wait, number) {
            Ok(Admitted::Queued(place)) => {
                let (this, account) = (self.clone(), account.clone());
                Ok(Admitted::Queued(Box::pin(async move {
                    match place.await {
                        Err(_) if !this.inner.is_there(&loaded) => {
                            this.waits(account, number).await
                        }
                        admitted => admitted,
                    }
                })))
            }
            Err(_) if !self.inner.is_there(&loaded) => {
                Ok(Admitted::Queued(self.waits(account.clone(), number)))
            }
            admitted => admitted,
        }
    }

    fn accepts(&self) -> Result<(), Refusal> {
        match self
            .inner
            .loaded
            .load_full()
            .filter(|loaded| !loaded.has_failed())
        {
            Some(loaded) => match loaded.runtime.accepts() {
                // It has left meanwhile, and comes back for who waits.
                Err(_) if !self.inner.is_there(&loaded) => Ok(()),
                accepts => accepts,
            },
            None => Ok(()),
        }
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        // A script says more of itself when it has run.
        let loaded = self.inner.loaded.load();
        let told = loaded.as_ref().and_then(|loaded| loaded.runtime.schema());
        Some(told.unwrap_or_else(|| Arc::clone(&self.inner.schema)))
    }

    fn report(&self) -> HealthReport {
        match self.inner.loaded.load().as_ref() {
            Some(loaded) => loaded.runtime.report(),
            // It takes jobs, which is all that anybody asks.
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

    fn pool_status(&self) -> PoolStatus {
        self.inner
            .loaded
            .load()
            .as_ref()
            .map(|loaded| loaded.runtime.pool_status())
            .unwrap_or_default()
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
