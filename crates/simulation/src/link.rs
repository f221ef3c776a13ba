//! The connection of one process to a server: calls take time, fail, and stop with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::faults::{Faults, Loss, SharedServer};

/// How long a caller waits for a server that does not answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a process runs. A process that crashed makes no calls any more: its tasks wait for ever.
#[derive(Debug, Clone, Default)]
pub struct ProcessLife(Arc<LifeState>);

#[derive(Debug, Default)]
struct LifeState {
    is_over: AtomicBool,
    crashed: CancellationToken,
}

impl ProcessLife {
    /// Stops the process at once.
    pub fn crash(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        self.0.crashed.cancel();
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        !self.0.is_over.load(Ordering::Relaxed)
    }

    /// Waits until the process crashes.
    pub async fn crashed(&self) {
        self.0.crashed.cancelled().await;
    }

    /// Returns if the process runs, and never if it crashed.
    pub async fn or_never(&self) {
        if !self.is_running() {
            std::future::pending::<()>().await;
        }
    }
}

/// The connection of a process to a server.
#[derive(Clone)]
pub struct ServerLink {
    life: ProcessLife,
    faults: Arc<Faults>,
    server: SharedServer,
}

/// A call that failed. It may have had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoReply;

impl ServerLink {
    /// Connects a process to a server.
    pub fn new(life: ProcessLife, faults: Arc<Faults>, server: SharedServer) -> Self {
        Self {
            life,
            faults,
            server,
        }
    }

    /// Calls the server.
    pub async fn call<T>(&self, operation: impl FnOnce() -> T) -> Result<T, NoReply> {
        self.life.or_never().await;
        let plan = self.faults.plan();
        self.pause(plan.request).await;
        if self.faults.is_down(self.server) {
            return Err(NoReply);
        }
        if plan.loss == Some(Loss::Request) {
            self.pause(CALL_TIMEOUT).await;
            return Err(NoReply);
        }
        let result = operation();
        if plan.loss == Some(Loss::Reply) {
            self.pause(CALL_TIMEOUT).await;
            return Err(NoReply);
        }
        self.pause(plan.reply).await;
        Ok(result)
    }

    /// Waits; for ever if the process crashes meanwhile.
    pub async fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        self.life.or_never().await;
    }
}
