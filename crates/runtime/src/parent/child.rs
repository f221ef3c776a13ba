//! A child process as the rest of the runtime sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::{Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tidegate_core::pool_status::DeathCause;
use tidegate_ipc::control::{ControlRequest, SlotId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::leftovers::{Family, Mark};
use crate::oom;

/// A running child. Its owner is the supervisor; jobs hold it to cancel and to notice its death.
pub(crate) struct Child {
    pid: u32,
    requests: mpsc::UnboundedSender<ControlRequest>,
    dead: CancellationToken,
    /// It has asked to be replaced.
    retired: CancellationToken,
    /// How many jobs at once its code wants, and one more; zero until it has said.
    wants: AtomicU32,
    /// Whether we ended it ourselves.
    killed: AtomicBool,
    /// Whether the system ended it because memory ran out.
    out_of_memory: AtomicBool,
    /// Of what it died, once that is known.
    cause: OnceLock<DeathCause>,
    oom_kills_before: u64,
    mark: Mark,
    family: Arc<Family>,
    /// Whether a job was ever given to it: if it dies, the job may be to blame and not the model.
    pub(crate) used: AtomicBool,
    healthchecks: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    next_healthcheck: AtomicU64,
}

impl Child {
    pub(crate) fn new(
        pid: u32,
        mark: Mark,
        family: Arc<Family>,
        requests: mpsc::UnboundedSender<ControlRequest>,
    ) -> Self {
        Self {
            pid,
            requests,
            dead: CancellationToken::new(),
            retired: CancellationToken::new(),
            wants: AtomicU32::new(0),
            killed: AtomicBool::new(false),
            out_of_memory: AtomicBool::new(false),
            cause: OnceLock::new(),
            oom_kills_before: oom::kills(),
            mark,
            family,
            used: AtomicBool::new(false),
            healthchecks: Mutex::default(),
            next_healthcheck: AtomicU64::new(1),
        }
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Of what it died. What is not known was our own doing.
    pub(crate) fn cause(&self) -> DeathCause {
        self.cause.get().copied().unwrap_or(DeathCause::Killed)
    }

    /// Asks the child to stop the nth job of a slot.
    pub(crate) fn cancel(&self, slot: SlotId, nth: u64) {
        self.send(ControlRequest::Cancel { slot, nth });
    }

    /// Asks the child to finish and exit.
    pub(crate) fn shut_down(&self) {
        self.send(ControlRequest::Shutdown);
    }

    fn send(&self, request: ControlRequest) {
        // The receiver is gone only when the child is.
        self.requests.send(request).ok();
    }

    /// Ends the child and everything it has started that still belongs to its group.
    pub(crate) fn kill(&self) {
        if !self.is_dead() {
            self.killed.store(true, Ordering::Relaxed);
            self.kill_group();
        }
    }

    /// Ends what the child has left behind: its group, and daemons that have left it.
    pub(crate) async fn kill_leftovers(&self) {
        self.kill_group();
        let (pid, mark, family) = (self.pid, self.mark.clone(), Arc::clone(&self.family));
        // Looking through all processes of the machine takes a moment.
        tokio::task::spawn_blocking(move || kill_daemons(&family, pid, &mark))
            .await
            .ok();
    }

    /// The same for those who cannot wait.
    pub(crate) fn kill_daemons(&self) {
        kill_daemons(&self.family, self.pid, &self.mark);
    }

    /// Right after its death at the latest: later the number may be somebody else's.
    fn kill_group(&self) {
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

    /// Its code has said how many jobs at once it wants.
    pub(crate) fn wants(&self, slots: u32) {
        self.wants.store(slots.saturating_add(1), Ordering::Relaxed);
    }

    /// How many jobs at once its code wants, if it says.
    pub(crate) fn wanted(&self) -> Option<usize> {
        self.wants
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .map(|slots| slots as usize)
    }

    /// Gives it no more jobs. It ends by itself when the last of its slots is closed.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Waits until it has asked to be replaced.
    pub(crate) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Whether it has asked to be replaced.
    pub(crate) fn has_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Whether its slots are of no more use.
    pub(crate) fn takes_no_more(&self) -> bool {
        self.is_dead() || self.has_retired()
    }

    /// Notes how the process ended, before it is buried; says it in words.
    pub(crate) fn post_mortem(&self, ended: std::io::Result<ExitStatus>) -> String {
        let status = match ended {
            Ok(status) => status,
            Err(error) => return error.to_string(),
        };
        let by_us = self.killed.load(Ordering::Relaxed);
        let by_system = status.signal() == Some(Signal::KILL.as_raw()) && !by_us;
        let starved = by_system && oom::kills() > self.oom_kills_before;
        let cause = match status.signal() {
            _ if starved => DeathCause::OutOfMemory,
            _ if by_us => DeathCause::Killed,
            Some(_) => DeathCause::Signal,
            None => DeathCause::Exit,
        };
        // It dies once.
        self.cause.set(cause).ok();
        if starved {
            self.out_of_memory.store(true, Ordering::Relaxed);
            return format!("{status}: out of memory");
        }
        status.to_string()
    }

    /// Whether it died because memory ran out.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.out_of_memory.load(Ordering::Relaxed)
    }

    /// Said once by the supervisor, when the process has been reaped.
    pub(crate) fn bury(&self) {
        self.dead.cancel();
        self.healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
    }

    /// Runs the user's health check: `Ok(None)` is well, `Err` is no answer because the child died.
    pub(crate) async fn healthcheck(&self) -> Result<Option<String>, oneshot::error::RecvError> {
        let id = self.next_healthcheck.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(id, tx);
        self.send(ControlRequest::Healthcheck { id });
        if self.is_dead() {
            self.bury();
        }
        rx.await
    }

    /// The child's answer to a health check.
    pub(crate) fn healthcheck_answered(&self, id: u64, health_error: Option<String>) {
        let waiting = self
            .healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&id);
        if let Some(waiting) = waiting {
            // Whoever asked may have left.
            waiting.send(health_error).ok();
        }
    }
}

fn kill_daemons(family: &Family, pid: u32, mark: &Mark) {
    let daemons = family.bury(pid, mark);
    if daemons > 0 {
        tracing::warn!(daemons, "killed processes that the model had left behind");
    }
}
