//! An executor whose jobs run on a Cog server, over its HTTP API.
//!
//! A task checks the health of the server. A job is one request: a stream of events if the model streams,
//! otherwise a request that returns the result. Closing the connection cancels the job, as in Cog.

mod run;
mod stored_files;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal, chain};
use tidegate_net::{Client, HttpRequest, Url, header::HeaderMap, host_of};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::run::CogAdmission;
use self::wire::HealthBody;

/// The pause between two checks of a server that is ready, and of one that is not.
const READY_INTERVAL: Duration = Duration::from_secs(2);
const STARTING_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time of one check.
const CHECK_LIMIT: Duration = Duration::from_secs(10);

/// A Cog server. Clones share one.
#[derive(Clone)]
pub struct CogServer {
    inner: Arc<Inner>,
}

struct Inner {
    url: Url,
    net: Client,
    slots: Arc<Semaphore>,
    size: usize,
    schema: Mutex<Option<Arc<Bytes>>>,
    /// Whether predictions can be followed as a stream.
    streams: AtomicBool,
    health: watch::Sender<Health>,
    /// Makes the watcher check the health at once.
    check_now: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl CogServer {
    /// Starts to watch a server. `slots` is how many jobs it gets at the same time.
    pub fn start(url: Url, slots: usize) -> Self {
        let inner = Arc::new(Inner {
            url,
            net: Client::new(tidegate_net::Config::default()),
            slots: Arc::new(Semaphore::new(slots)),
            size: slots,
            schema: Mutex::default(),
            streams: AtomicBool::new(false),
            health: watch::Sender::new(Health::Starting),
            check_now: Notify::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner.tasks.spawn(Arc::clone(&inner).watch());
        Self { inner }
    }

    /// Waits until the server is ready, and returns its schema.
    pub async fn ready(&self) -> Arc<Bytes> {
        let mut health = self.inner.health.subscribe();
        loop {
            // The sender lives as long as this handle.
            health.wait_for(is_ready).await.ok();
            if let Some(schema) = self.schema() {
                return schema;
            }
            health.changed().await.ok();
        }
    }
}

impl Inner {
    fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        url
    }

    async fn get(&self, path: &str) -> Result<Bytes, String> {
        let request = HttpRequest {
            url: self.url(path),
            headers: HeaderMap::new(),
            body: None,
            limit: CHECK_LIMIT,
        };
        match self.net.send(request).await {
            Ok(response) if response.status == 200 => Ok(response.body),
            Ok(response) => Err(format!(
                "`/{path}` responded with status {}",
                response.status
            )),
            Err(error) => Err(chain(&error).to_string()),
        }
    }

    /// Checks the health of the server until it is stopped.
    async fn watch(self: Arc<Self>) {
        let mut is_down = false;
        loop {
            let health = match self.check().await {
                Ok(health) => {
                    if std::mem::take(&mut is_down) {
                        tracing::info!(
                            host = host_of(&self.url),
                            "the Cog server can be reached again"
                        );
                    }
                    health
                }
                Err(error) => {
                    if !is_down {
                        tracing::warn!(
                            host = host_of(&self.url),
                            error,
                            "waiting for the Cog server"
                        );
                    }
                    is_down = true;
                    Health::Starting
                }
            };
            self.health.send_replace(health);
            let interval = match health {
                Health::Ready | Health::Busy => READY_INTERVAL,
                Health::Unknown | Health::Starting | Health::SetupFailed | Health::Defunct => {
                    STARTING_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.check_now.notified() => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// The server did not take a request, because it is down or starts. No more jobs are taken until it is
    /// ready; waits for that.
    async fn ready_again(&self) {
        self.health.send_replace(Health::Starting);
        self.check_now.notify_one();
        self.until_ready().await;
    }

    async fn until_ready(&self) {
        let mut health = self.health.subscribe();
        // The sender lives as long as `self`.
        health.wait_for(is_ready).await.ok();
    }

    fn is_ready(&self) -> bool {
        is_ready(&self.health.borrow())
    }

    async fn check(&self) -> Result<Health, String> {
        let body = self.get("health-check").await?;
        let body: HealthBody = serde_json::from_slice(&body)
            .map_err(|error| format!("`/health-check` is not that of a Cog server: {error}"))?;
        let health = body.health();
        let has_schema = self.lock_schema().is_some();
        if is_ready(&health) && !has_schema {
            let schema = self.get("openapi.json").await?;
            let document: Value = serde_json::from_slice(&schema)
                .map_err(|error| format!("`/openapi.json` cannot be read: {error}"))?;
            let streams = document.pointer("/paths/~1predictions/post/x-cog-streaming");
            let streams = streams.and_then(Value::as_bool).unwrap_or_default();
            self.streams.store(streams, Ordering::Relaxed);
            *self.lock_schema() = Some(Arc::new(schema));
        }
        Ok(health)
    }

    fn lock_schema(&self) -> std::sync::MutexGuard<'_, Option<Arc<Bytes>>> {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Executor for CogServer {
    fn admit(&self, _account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal> {
        let inner = Arc::clone(&self.inner);
        if inner.is_ready()
            && let Ok(permit) = Arc::clone(&inner.slots).try_acquire_owned()
        {
            return Ok(Admitted::Now(Box::new(CogAdmission::new(inner, permit))));
        }
        if wait == WaitPolicy::NoWait {
            return Err(Refusal::AtCapacity);
        }
        Ok(Admitted::Queued(Box::pin(async move {
            let permit = Arc::clone(&inner.slots).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            inner.until_ready().await;
            Ok(Box::new(CogAdmission::new(inner, permit)) as Box<dyn Admission>)
        })))
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        self.inner.lock_schema().clone()
    }

    fn report(&self) -> HealthReport {
        HealthReport {
            health: *self.inner.health.borrow(),
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }

    async fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    fn pool_status(&self) -> PoolStatus {
        let free = if self.inner.is_ready() {
            self.inner.slots.available_permits()
        } else {
            0
        };
        PoolStatus {
            slots: self.inner.size,
            free,
            ..PoolStatus::default()
        }
    }
}

/// Whether a server with this health takes jobs.
fn is_ready(health: &Health) -> bool {
    matches!(health, Health::Ready | Health::Busy)
}
