//! [`ChildProcess`]: the handle of a running child, for the supervisor and for jobs.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::{Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tidegate_core::gpu::LeaseEnd;
use tidegate_core::pool_status::DeathCause;
use tidegate_ipc::ProcessTag;
use tidegate_ipc::control::{ControlRequest, SlotId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::oom;
use crate::reaper::Reaper;

/// A running child. The supervisor owns it; jobs hold it to cancel and to notice its death.
pub(crate) struct ChildProcess {
    pid: u32,
    requests: mpsc::UnboundedSender<ControlRequest>,
    dead: CancellationToken,
    /// Cancelled when the child gets no more jobs.
    retired: CancellationToken,
    /// Why, once it is.
    retirement: OnceLock<Retirement>,
    /// The desired concurrency plus one; zero until the child has reported it.
    desired_concurrency: AtomicU32,
    /// Whether the server killed the child.
    killed: AtomicBool,
    /// Whether the OOM killer killed the child.
    out_of_memory: AtomicBool,
    /// The cause of death, once it is known.
    cause: OnceLock<DeathCause>,
    oom_kills_before: u64,
    tag: ProcessTag,
    reaper: Arc<Reaper>,
    /// Whether the child ever received a job: if it dies, the job may be the cause and not the model.
    pub(crate) used: AtomicBool,
    healthchecks: Mutex<HashMap<u64, oneshot::Sender<Option<String>>>>,
    next_healthcheck: AtomicU64,
}

/// Why a child gets no more jobs and exits, although it has not failed by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Retirement {
    /// A job asked for a new process.
    Requested,
    /// The load does not need the child.
    NotNeeded,
    /// The child can no longer use its GPU; the text is the error.
    GpuError(String),
    /// A model needs the GPU memory of the child, and its own model can do without it.
    MemoryNeeded,
}

impl std::fmt::Display for Retirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requested => f.write_str("the model requested a new process"),
            Self::NotNeeded => f.write_str("the load needs fewer processes"),
            Self::GpuError(reason) => write!(f, "the process can no longer use its GPU: {reason}"),
            Self::MemoryNeeded => write!(f, "{}", LeaseEnd::Revoked),
        }
    }
}

impl ChildProcess {
    pub(crate) fn new(
        pid: u32,
        tag: ProcessTag,
        reaper: Arc<Reaper>,
        requests: mpsc::UnboundedSender<ControlRequest>,
    ) -> Self {
        Self {
            pid,
            requests,
            dead: CancellationToken::new(),
            retired: CancellationToken::new(),
            retirement: OnceLock::new(),
            desired_concurrency: AtomicU32::new(0),
            killed: AtomicBool::new(false),
            out_of_memory: AtomicBool::new(false),
            cause: OnceLock::new(),
            oom_kills_before: oom::kill_count(),
            tag,
            reaper,
            used: AtomicBool::new(false),
            healthchecks: Mutex::default(),
            next_healthcheck: AtomicU64::new(1),
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The cause of death. An unknown cause means that the server killed the child.
    pub(crate) fn cause(&self) -> DeathCause {
        self.cause.get().copied().unwrap_or(DeathCause::Killed)
    }

    /// Asks the child to cancel job number `nth` of a slot.
    pub(crate) fn cancel(&self, slot: SlotId, nth: u64) {
        self.send(ControlRequest::Cancel { slot, nth });
    }

    /// Asks a child that has imported the model to run its setup.
    pub(crate) fn set_up(&self, env: BTreeMap<String, String>) {
        self.send(ControlRequest::SetUp { env });
    }

    /// Asks the child to finish its jobs and exit.
    pub(crate) fn shut_down(&self) {
        self.send(ControlRequest::Shutdown);
    }

    fn send(&self, request: ControlRequest) {
        // The receiver is dropped only when the child is dead.
        self.requests.send(request).ok();
    }

    /// Kills the child and all processes in its process group.
    pub(crate) fn kill(&self) {
        if !self.is_dead() {
            self.killed.store(true, Ordering::Relaxed);
            self.kill_group();
        }
    }

    /// Kills the processes that the child left behind: its process group, and daemons that have left
    /// the group.
    pub(crate) async fn kill_descendants(&self) {
        self.kill_group();
        let (pid, tag, reaper) = (self.pid, self.tag.clone(), Arc::clone(&self.reaper));
        // The search through all processes of the machine takes a moment.
        tokio::task::spawn_blocking(move || kill_descendants_now(&reaper, pid, &tag))
            .await
            .ok();
    }

    /// Like [`Self::kill_descendants`] without the process group, and blocking.
    pub(crate) fn kill_descendants_now(&self) {
        kill_descendants_now(&self.reaper, self.pid, &self.tag);
    }

    /// Must be called right after the child's death at the latest: later the process id may belong to
    /// another process.
    fn kill_group(&self) {
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            // Usually the group is empty.
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

    /// Records the desired concurrency that the child reported.
    pub(crate) fn set_desired_concurrency(&self, slots: u32) {
        self.desired_concurrency
            .store(slots.saturating_add(1), Ordering::Relaxed);
    }

    /// The desired concurrency, if the child reports it.
    pub(crate) fn desired_concurrency(&self) -> Option<usize> {
        self.desired_concurrency
            .load(Ordering::Relaxed)
            .checked_sub(1)
            .map(|slots| slots as usize)
    }

    /// Sends the child no more jobs. It exits by itself when its last slot is closed.
    pub(crate) fn retire(&self, why: Retirement) {
        // The first reason is the cause.
        self.retirement.set(why).ok();
        self.retired.cancel();
    }

    /// Why the child gets no more jobs, if it does not.
    pub(crate) fn retirement(&self) -> Option<&Retirement> {
        self.retirement.get()
    }

    /// Waits until the child gets no more jobs.
    pub(crate) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Whether the child gets no more jobs.
    pub(crate) fn has_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Whether the slots of the child can run no more jobs.
    pub(crate) fn is_unusable(&self) -> bool {
        self.is_dead() || self.has_retired()
    }

    /// Records how the process exited, before [`Self::mark_dead`]; returns a description.
    pub(crate) fn record_exit(&self, ended: std::io::Result<ExitStatus>) -> String {
        let status = match ended {
            Ok(status) => status,
            Err(error) => return error.to_string(),
        };
        let by_server = self.killed.load(Ordering::Relaxed);
        let by_system = status.signal() == Some(Signal::KILL.as_raw()) && !by_server;
        let is_oom = by_system && oom::kill_count() > self.oom_kills_before;
        let cause = match status.signal() {
            _ if is_oom => DeathCause::OutOfMemory,
            _ if by_server => DeathCause::Killed,
            Some(_) => DeathCause::Signal,
            None => DeathCause::Exit,
        };
        // A child dies once, so the cause is not set yet.
        self.cause.set(cause).ok();
        if is_oom {
            self.out_of_memory.store(true, Ordering::Relaxed);
            return format!("{status}: out of memory");
        }
        status.to_string()
    }

    /// Whether the OOM killer killed the child.
    pub(crate) fn was_oom_killed(&self) -> bool {
        self.out_of_memory.load(Ordering::Relaxed)
    }

    /// Called by the supervisor when the process has been reaped.
    pub(crate) fn mark_dead(&self) {
        self.dead.cancel();
        self.healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
    }

    /// Runs the model's health check. `Ok(None)` means healthy, `Ok(Some)` has the error, `Err` means
    /// that the child died before it replied.
    pub(crate) async fn healthcheck(&self) -> Result<Option<String>, oneshot::error::RecvError> {
        let id = self.next_healthcheck.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(id, tx);
        self.send(ControlRequest::Healthcheck { id });
        if self.is_dead() {
            self.mark_dead();
        }
        rx.await
    }

    /// Forwards the child's reply to the caller of [`Self::healthcheck`].
    pub(crate) fn healthcheck_replied(&self, id: u64, health_error: Option<String>) {
        let waiting = self
            .healthchecks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&id);
        if let Some(waiting) = waiting {
            // The caller may have left.
            waiting.send(health_error).ok();
        }
    }
}

fn kill_descendants_now(reaper: &Reaper, pid: u32, tag: &ProcessTag) {
    let daemons = reaper.kill_descendants(pid, tag);
    if daemons > 0 {
        tracing::warn!(daemons, "killed processes that the model left behind");
    }
}
