//! Limits how many models are loaded at a time (`--max-loaded`). When the limit is reached, the
//! model that was used least recently is unloaded to make space for the next one.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gpu::{EvictionScope, GpuEvictor, GpuId, GpuUser};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often a waiting caller checks whether a model can be unloaded.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A model that is never idle is unloaded when another model has waited this long.
const EVICT_BUSY_AFTER: Duration = Duration::from_secs(10);

/// The limit on loaded models. Clones share one limit.
#[derive(Clone)]
pub struct LoadLimit {
    /// `None`: no limit.
    free: Option<Arc<Semaphore>>,
    models: Arc<Mutex<Vec<Weak<dyn Evictable>>>>,
    /// Held while a caller waits for a permit, so that callers get permits in order of arrival.
    waiting: Arc<tokio::sync::Mutex<()>>,
}

/// The right to keep one model loaded. Dropping it lets another model load.
pub(crate) struct LoadPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// A model that can be unloaded on request.
#[async_trait]
pub(crate) trait Evictable: Send + Sync {
    /// When the model was last used, if it is loaded and idle.
    fn idle_since(&self) -> Option<Instant>;

    /// When the model was last used, if it is loaded, and its setup is complete or cannot go on.
    fn busy_since(&self) -> Option<Instant>;

    /// Whether one of its children was given one of these GPUs, and it is not `requester` itself.
    fn can_give_gpus(&self, gpus: &[GpuId], requester: GpuUser) -> bool;

    /// Unloads the model; returns when its permit is free.
    async fn unload_now(&self);
}

impl LoadLimit {
    /// Allows up to `max` loaded models; `None` allows any number.
    pub fn new(max: Option<usize>) -> Self {
        let free = max.map(|max| Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS))));
        Self {
            free,
            models: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Registers a model that this limit may unload.
    pub(crate) fn register(&self, model: Weak<dyn Evictable>) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|model| model.strong_count() > 0);
        models.push(model);
    }

    /// Waits for a permit, and unloads other models if necessary.
    pub(crate) async fn acquire(&self) -> LoadPermit {
        let Some(free) = &self.free else {
            return LoadPermit { _permit: None };
        };
        let _waiting = self.waiting.lock().await;
        let started = Instant::now();
        loop {
            if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
                return LoadPermit {
                    _permit: Some(permit),
                };
            }
            let only_idle = started.elapsed() < EVICT_BUSY_AFTER;
            match self.least_recently_used(|model| {
                if only_idle {
                    model.idle_since()
                } else {
                    model.busy_since()
                }
            }) {
                Some(model) => model.unload_now().await,
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn least_recently_used(
        &self,
        last_used: impl Fn(&dyn Evictable) -> Option<Instant>,
    ) -> Option<Arc<dyn Evictable>> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = models
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|model| Some((last_used(&*model)?, model)));
        loaded.min_by_key(|(used, _)| *used).map(|(_, model)| model)
    }
}

#[async_trait]
impl GpuEvictor for LoadLimit {
    async fn unload_one(&self, gpus: &[GpuId], which: EvictionScope, requester: GpuUser) -> bool {
        let model = self.least_recently_used(|model| {
            if !model.can_give_gpus(gpus, requester) {
                return None;
            }
            match which {
                EvictionScope::Idle => model.idle_since(),
                EvictionScope::Busy => model.busy_since(),
            }
        });
        match model {
            Some(model) => {
                model.unload_now().await;
                true
            }
            None => false,
        }
    }
}
