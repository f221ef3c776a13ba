//! The simulated live events: requests to stop jobs reach their directors, some of them get lost. Clients of
//! a simulation do not follow jobs, so events are accepted and dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::leases::JobRef;
use tidegate_core::live::{Live, LiveBatch, LiveError, LivePosition, WakeReason};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use crate::link::ServerLink;
use crate::planted_bug::PlantedBug;

type StopSender = mpsc::UnboundedSender<JobRef>;

/// The server of the live events.
pub(crate) struct LiveServer {
    /// A planted bug: requests to stop jobs get lost.
    loses_stops: bool,
    /// The directors that listen for requests to stop jobs.
    listeners: Mutex<BTreeMap<String, StopSender>>,
}

impl LiveServer {
    /// A server without listeners.
    pub(crate) fn new(planted: Option<PlantedBug>) -> Self {
        Self {
            loses_stops: planted == Some(PlantedBug::ForgottenCancel),
            listeners: Mutex::default(),
        }
    }
}

/// The connection of one process to the live events.
pub(crate) struct LiveClient {
    server: Arc<LiveServer>,
    link: ServerLink,
    stops: AsyncMutex<mpsc::UnboundedReceiver<JobRef>>,
}

impl LiveClient {
    /// Connects a process; requests to stop jobs of `name` arrive here from now on.
    pub(crate) fn new(server: Arc<LiveServer>, link: ServerLink, name: &str) -> Self {
        let (sender, stops) = mpsc::unbounded_channel();
        server
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), sender);
        Self {
            server,
            link,
            stops: AsyncMutex::new(stops),
        }
    }

    async fn call<T>(&self, operation: impl FnOnce() -> T) -> Result<T, LiveError> {
        let called = self.link.call(operation).await;
        called.map_err(|_| LiveError("no reply of the simulated server".to_owned()))
    }
}

#[async_trait]
impl Live for LiveClient {
    async fn publish(&self, _job: &JobRef, batch: LiveBatch) -> Result<u64, LiveError> {
        self.call(|| batch.offset + batch.events.len() as u64).await
    }

    async fn read(
        &self,
        _job: &JobRef,
        _after: LivePosition,
    ) -> Result<Option<LiveBatch>, LiveError> {
        Ok(None)
    }

    async fn wake(&self, _job: &JobRef, _reason: WakeReason) -> Result<(), LiveError> {
        Ok(())
    }

    async fn subscribe(&self, _job: &JobRef) -> Result<(), LiveError> {
        Ok(())
    }

    async fn unsubscribe(&self, _job: &JobRef) -> Result<(), LiveError> {
        Ok(())
    }

    async fn next_wake(&self) -> (JobRef, WakeReason) {
        std::future::pending().await
    }

    async fn request_stop(&self, holder: &str, job: &JobRef) -> Result<(), LiveError> {
        self.call(|| {
            let listeners = self.server.listeners.lock();
            let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            let listener = listeners.get(holder);
            if let Some(listener) = listener.filter(|_| !self.server.loses_stops) {
                // A director that is gone gets no requests.
                listener.send(job.clone()).ok();
            }
        })
        .await
    }

    async fn stop_requested(&self, _holder: &str) -> JobRef {
        match self.stops.lock().await.recv().await {
            Some(job) => {
                self.link.pause(std::time::Duration::ZERO).await;
                job
            }
            // A later process has this name.
            None => std::future::pending().await,
        }
    }
}
