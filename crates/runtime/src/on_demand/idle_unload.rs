//! Unloads a model after a time without jobs, and for the load limit.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gpu::{GpuId, GpuUser};
use tidegate_core::port::Executor;
use tokio::time::Instant;

use super::{Inner, LoadedModel};
use crate::load_limit::Evictable;

impl Inner {
    /// Unloads the model when it was idle for `idle_timeout`.
    pub(super) async fn unload_when_idle(
        self: Arc<Self>,
        loaded: Arc<LoadedModel>,
        idle_timeout: Duration,
    ) {
        let interval = (idle_timeout / 10).clamp(Duration::from_millis(20), Duration::from_secs(5));
        while self.is_current(&loaded) {
            if self
                .stop
                .run_until_cancelled(tokio::time::sleep(interval))
                .await
                .is_none()
            {
                return;
            }
            if !loaded.runtime.is_idle() {
                self.touch();
            } else if self.last_used().elapsed() >= idle_timeout {
                self.unload(Arc::clone(&loaded)).await;
            }
        }
    }

    /// Unloads the model. Running jobs finish; jobs that wait for a slot wait for the next load.
    pub(super) async fn unload(&self, loaded: Arc<LoadedModel>) {
        self.loaded
            .compare_and_swap(&Some(Arc::clone(&loaded)), None);
        // A task of its own: the caller that needs the load permit may stop waiting, and the model
        // must be gone before the permit is free all the same.
        let unloading = self.tasks.spawn(async move {
            loaded.runtime.drain_and_stop().await;
            loaded.release();
        });
        if let Err(error) = unloading.await {
            tracing::error!(%error, "failed to unload model");
        }
    }

    fn last_used(&self) -> Instant {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedModel {
    /// Stops the children without waiting for running jobs.
    pub(super) async fn stop(&self) {
        self.runtime.stop().await;
        self.release();
    }

    fn release(&self) {
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

#[async_trait]
impl Evictable for Inner {
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
            .filter(|loaded| !loaded.is_loading() || loaded.runtime.waits_for_gpus())
            .map(|_| self.last_used())
    }

    fn can_give_gpus(&self, gpus: &[GpuId], requester: GpuUser) -> bool {
        let loaded = self.loaded.load();
        loaded
            .as_ref()
            .is_some_and(|loaded| loaded.runtime.can_give_gpus(gpus, requester))
    }

    async fn unload_now(&self) {
        if let Some(loaded) = self.loaded.load_full() {
            self.unload(loaded).await;
        }
    }
}
