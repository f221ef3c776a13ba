//! A child process as the rest of the runtime sees it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal};
use tidegate_ipc::control::{Request, SlotId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A running child. Its owner is the supervisor; jobs hold it to cancel and to notice its death.
pub(crate) struct Child {
    pid: u32,
    requests: mpsc::UnboundedSender<Request>,
    dead: CancellationToken,
    /// Whether a job was ever given to it: if it dies, the job may be to blame and not the model.
    pub(crate) used: AtomicBool,
    healthchecks: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    next_healthcheck: AtomicU64,
}

impl Child {
    pub(crate) fn new(pid: u32, requests: mpsc::UnboundedSender<Request>) -> Self {
        Self {
            pid,
            requests,
            dead: CancellationToken::new(),
            used: AtomicBool::new(false),
            healthchecks: Mutex::default(),
            next_healthcheck: AtomicU64::new(1),
        }
    }

    /// Asks the child to stop one job.
    pub(crate) fn cancel(&self, slot: SlotId, id: &str) {
        self.send(Request::Cancel { slot, id: id.to_owned() });
    }

    /// Asks the child to finish and exit.
    pub(crate) fn shut_down(&self) {
        self.send(Request::Shutdown);
    }

    fn send(&self, request: Request) {
        // The receiver is gone only when the child is.
        self.requests.send(request).ok();
    }

    /// Ends the child and everything it has started that still belongs to its group.
    pub(crate) fn kill(&self) {
        if !self.is_dead() {
            self.kill_group();
        }
    }

    /// Ends what the child has left behind in its group. Right after its death only: later the number
    /// may be somebody else's.
    pub(crate) fn kill_group(&self) {
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            // Mostly there is nobody left.
            rustix::process::kill_process_group(pid, Signal::KILL).ok();
        }
    }

    /// Waits until the child is dead.
    pub(crate) async fn dead(&self) {
        self.dead.cancelled().await;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Said once by the supervisor, when the process has been reaped.
    pub(crate) fn bury(&self) {
        self.dead.cancel();
        self.healthchecks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// Runs the user's health check: `Ok(None)` is well, `Err` is no answer because the child died.
    pub(crate) async fn healthcheck(&self) -> Result<Option<String>, oneshot::error::RecvError> {
        let id = self.next_healthcheck.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.healthchecks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(id, tx);
        self.send(Request::Healthcheck { id });
        if self.is_dead() {
            self.bury();
        }
        rx.await
    }

    /// The child's answer to a health check.
    pub(crate) fn healthcheck_answered(&self, id: u64, complaint: Option<String>) {
        let waiting = self.healthchecks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
        if let Some(waiting) = waiting {
            // Whoever asked may have left.
            waiting.send(complaint).ok();
        }
    }
}
