//! Starts, watches and restarts one child process.
//!
//! A child that ran a job is replaced at once: the job may have killed it, and other jobs may work.
//! A child that dies repeatedly without a single job is replaced after growing pauses, and the model
//! becomes defunct after too many such deaths.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_core::chain;
use tidegate_core::gpu::{AllocatorMemory, GpuLease, LeaseEnd};
use tidegate_core::planted;
use tidegate_core::pool_status::{DeathCause, SpareKind};
use tidegate_ipc::control::{ControlResponse, HealthcheckStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch::{self, Batcher};
use crate::child::boot::{BootContext, BootError, ReadyChild, log_message};
use crate::child::pool_slot::PoolSlot;
use crate::child::process::{ChildProcess, Retirement};
use crate::child::queued_caller::QueuedCaller;
use crate::child_gpus::{self, ChildGpus};
use crate::launch_config::{LaunchConfig, Respawn};
use crate::model_state::{ModelState, Recovery};
use crate::observer::{Observer, Phase, PoolEvent};
use crate::reaper::Reaper;
use crate::scaler::RefusedCallers;
use crate::schema::schema_warnings;
use crate::scratch::Scratch;
use crate::slots::Pool;
use crate::spare::{SpareChild, SpareHandle};

/// The pause before the first restart of a child that died without a job; it doubles each time.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The pause when the machine has no file descriptors, memory or processes left for a child.
const RESOURCE_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// A child that lived this long after it was ready was not broken from the start.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// How often zombie processes of the model's daemons are reaped.
const REAP_INTERVAL: Duration = Duration::from_secs(15);

/// How long children have to exit after a shutdown request.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long the server waits for the exit of a child that has closed its channel, before it kills
/// the child: the exit status shows how it died.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(200);

/// State that all children of a model share.
pub(crate) struct RuntimeShared {
    pub(crate) launch: LaunchConfig,
    pub(crate) scratch: Scratch,
    pub(crate) pool: Pool<PoolSlot, QueuedCaller>,
    /// Forms the batches of a model that batches.
    pub(crate) batcher: Arc<Batcher>,
    pub(crate) state: ModelState,
    pub(crate) refused: RefusedCallers,
    pub(crate) spare: SpareHandle,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) gpus: ChildGpus,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the model stops: no child is started, and running children exit.
    pub(crate) stop: CancellationToken,
}

impl RuntimeShared {
    /// Rejects all callers and items that wait for a child: there may never be one.
    fn reject_waiting(&self) {
        self.pool.reject_waiters();
        self.batcher.reject_items();
    }
}

/// Keeps child number `child_number` alive until the model stops or the load no longer needs it.
pub(crate) async fn supervise(shared: Arc<RuntimeShared>, child_number: usize) {
    let mut strikes = 0;
    let mut was_ready = false;
    let mut successor: Option<Box<ReadyChild>> = None;
    // Kept until this function returns: the processes that replace each other have the same GPUs, unless
    // a spare brings its own.
    let mut gpus = None;
    // A successor is watched also when the model stops: it must exit with the model.
    while !shared.stop.is_cancelled() || successor.is_some() {
        if !shared.state.is_wanted(child_number) {
            return shared.state.scaled_down(child_number);
        }
        let started = Instant::now();
        let booted = match successor.take() {
            Some(child) => {
                gpus.clone_from(&child.gpus);
                Ok(*child)
            }
            None => tokio::select! {
                biased;
                () = shared.stop.cancelled() => return,
                booted = obtain(&shared, child_number, &mut gpus) => booted,
            },
        };
        let end = match booted {
            Err(error) if error.is_transient() => {
                // The failure says nothing about the model: retry until the machine has resources.
                tracing::warn!(error = %chain(&error), "failed to start child, retrying");
                tokio::select! {
                    () = tokio::time::sleep(RESOURCE_RETRY_PAUSE) => {}
                    () = shared.stop.cancelled() => return,
                }
                continue;
            }
            Ok(ready_child) => {
                was_ready = true;
                run(&shared, child_number, ready_child, started).await
            }
            Err(error) if !was_ready => return give_up_setup(&shared, child_number, &error),
            // It was added because of the load, and others have the memory now.
            Err(error @ BootError::NoGpu(_)) if shared.gpus.is_additional(child_number) => {
                return give_up_setup(&shared, child_number, &error);
            }
            Err(error) => ChildEnd {
                reason: chain(&error).to_string(),
                kind: EndKind::Death {
                    cause: DeathCause::Setup,
                    is_strike: true,
                },
                successor: None,
            },
        };
        let ChildEnd {
            reason,
            kind,
            successor: next,
        } = end;
        successor = next;
        // A model that is being unloaded needs no replacement.
        if shared.stop.is_cancelled() || shared.pool.is_closed() {
            if successor.is_none() {
                return;
            }
            continue;
        }
        let pause = match kind {
            EndKind::Retired if !shared.state.is_wanted(child_number) => continue,
            EndKind::Retired => {
                strikes = 0;
                report_death(&shared, child_number, &reason, Duration::ZERO);
                continue;
            }
            EndKind::Death { cause, is_strike } => {
                shared.state.died(cause);
                strikes = if is_strike { strikes + 1 } else { 0 };
                if successor.is_some() {
                    report_death(&shared, child_number, &reason, Duration::ZERO);
                    continue;
                }
                let decision = respawn_decision(shared.launch.respawn, strikes);
                planted!(NotReplaced, let decision = RespawnDecision::GiveUp);
                match decision {
                    RespawnDecision::Respawn(pause) => {
                        shared.state.starting(child_number, &reason);
                        report_death(&shared, child_number, &reason, pause);
                        pause
                    }
                    RespawnDecision::RespawnDefunct(pause) => {
                        mark_defunct(&shared, child_number, &reason);
                        pause
                    }
                    RespawnDecision::GiveUp => {
                        return mark_defunct(&shared, child_number, &reason);
                    }
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// How a child ended, and the child that has its place already.
struct ChildEnd {
    reason: String,
    kind: EndKind,
    successor: Option<Box<ReadyChild>>,
}

enum EndKind {
    /// The child has exited, or will exit after its jobs, because it was retired.
    Retired,
    /// The child has died. A strike delays its replacement.
    Death { cause: DeathCause, is_strike: bool },
}

/// Takes the spare, or starts a child.
async fn obtain(
    shared: &RuntimeShared,
    child_number: usize,
    gpus: &mut Option<Arc<dyn GpuLease>>,
) -> Result<ReadyChild, BootError> {
    if shared.launch.spare == Some(SpareKind::Loaded)
        && let Some(SpareChild::Loaded(child)) = shared.spare.take().await
    {
        shared.state.loading(child_number, child.child.pid());
        gpus.clone_from(&child.gpus);
        return Ok(*child);
    }
    gpus.take_if(|gpus| gpus.has_ended());
    match gpus {
        Some(gpus) => gpus.memory_returned().await,
        None => *gpus = shared.gpus.acquire(child_number).await?,
    }
    if let Some(gpus) = gpus {
        record_gpus(shared, child_number, gpus);
    }
    // After the GPUs: a child that gets none leaves the spare to others.
    let spare = match shared.launch.spare {
        Some(SpareKind::Imported) => match shared.spare.take().await {
            Some(SpareChild::Imported(child)) if child.can_use(gpus.as_ref()) => Some(child),
            Some(SpareChild::Imported(_) | SpareChild::Loaded(_)) | None => None,
        },
        Some(SpareKind::Loaded) | None => None,
    };
    with_boot_context(shared, child_number, gpus.as_ref(), async |context| {
        let Some(spare) = spare else {
            return context.run().await;
        };
        (context.report)(Phase::Loading { pid: spare.pid() });
        spare.set_up(context).await
    })
    .await
}

/// Gives jobs to a ready child until it ends.
async fn run(
    shared: &Arc<RuntimeShared>,
    child_number: usize,
    mut ready_child: ReadyChild,
    started: Instant,
) -> ChildEnd {
    let child = Arc::clone(&ready_child.child);
    if let Some(gpus) = &ready_child.gpus {
        record_gpus(shared, child_number, gpus);
    }
    open_slots(shared, child_number, &mut ready_child);
    shared.observer.phase(
        child_number,
        Phase::Ready {
            after: started.elapsed(),
            slots: batch::capacity_of(&ready_child.ready),
        },
    );
    let ready_at = Instant::now();
    match watch(shared, &mut ready_child, WatchUntil::Retired).await {
        WatchEnd::Retired => {
            // The first process that is ready for jobs takes over, while this one finishes its own.
            match child.retirement() {
                Some(Retirement::GpuError(_)) => shared.state.died(DeathCause::GpuError),
                Some(Retirement::MemoryNeeded) => give_up_memory(shared, child_number, &child),
                Some(Retirement::Requested | Retirement::NotNeeded) | None => {}
            }
            let reason = child.retirement().map(ToString::to_string);
            let reason = reason.unwrap_or_default();
            let successor = if shared.state.is_wanted(child_number) {
                shared.spare.take_ready().await
            } else {
                None
            };
            if let Some(successor) = &successor {
                let pid = successor.child.pid();
                shared.state.taken_over(child_number, &reason, pid);
                let shared = Arc::clone(shared);
                let tasks = shared.tasks.clone();
                tasks.spawn(async move {
                    watch(&shared, &mut ready_child, WatchUntil::Dead).await;
                    ready_child.child.kill_descendants().await;
                });
            } else {
                watch(shared, &mut ready_child, WatchUntil::Dead).await;
                shared.state.starting_if_wanted(child_number, &reason);
                child.kill_descendants().await;
            }
            ChildEnd {
                reason,
                kind: EndKind::Retired,
                successor,
            }
        }
        WatchEnd::Dead { reason } => {
            let successor = match shared.launch.respawn {
                Respawn::Backoff { .. } => shared.spare.take_ready().await,
                Respawn::Never => None,
            };
            // Before anything else: until the state changes, callers get the answer that all slots
            // are in use. Processes that the model started are killed with it.
            match &successor {
                Some(successor) => {
                    let (child, pid) = (Arc::clone(&child), successor.child.pid());
                    shared.state.taken_over(child_number, &reason, pid);
                    let tasks = &shared.tasks;
                    tasks.spawn(async move { child.kill_descendants().await });
                }
                None => {
                    shared.state.starting_if_wanted(child_number, &reason);
                    child.kill_descendants().await;
                }
            }
            ChildEnd {
                reason,
                kind: EndKind::Death {
                    cause: child.cause(),
                    is_strike: !child.used.load(Ordering::Relaxed)
                        && ready_at.elapsed() <= STABLE_AFTER,
                },
                successor,
            }
        }
    }
}

/// Records the GPUs of a child.
fn record_gpus(shared: &RuntimeShared, child_number: usize, gpus: &Arc<dyn GpuLease>) {
    shared.state.gpus_assigned(child_number, gpus.gpus());
    shared.gpus.assigned(child_number, gpus);
}

/// Does without a child whose memory a model needs, if enough others are left.
fn give_up_memory(shared: &RuntimeShared, child_number: usize, child: &ChildProcess) {
    let min = shared.launch.children.max(1);
    if shared.state.give_up_child(child_number, min) {
        shared.gpus.removed(child_number);
        tracing::info!(
            pid = child.pid(),
            "stopping an additional process: a model needs its GPU memory"
        );
    }
}

/// Reports the setup of a child that failed.
fn give_up_setup(shared: &RuntimeShared, child_number: usize, error: &BootError) {
    let reason = chain(error).to_string();
    // Without a GPU, no process was started.
    if !matches!(error, BootError::NoGpu(_)) {
        shared.state.died(DeathCause::Setup);
    }
    if shared.state.is_open() {
        // An additional child: the others run the jobs, and the scaler tries again later.
        shared.state.scale_up_failed(child_number, &reason);
        return shared.observer.pool_event(PoolEvent::ScaleUpFailed {
            child: child_number,
            reason: &reason,
        });
    }
    shared.state.setup_failed(child_number, &reason);
    shared.reject_waiting();
    shared
        .observer
        .phase(child_number, Phase::Failed { reason: &reason });
}

fn report_death(shared: &RuntimeShared, child_number: usize, reason: &str, pause: Duration) {
    shared
        .observer
        .phase(child_number, Phase::Died { reason, pause });
}

/// Periodically reaps processes that the model left behind and that have exited.
pub(crate) async fn reap_loop(shared: Arc<RuntimeShared>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(REAP_INTERVAL) => {}
            () = shared.stop.cancelled() => return,
        }
        let reaper = Arc::clone(&shared.reaper);
        tokio::task::spawn_blocking(move || reaper.reap_zombies())
            .await
            .ok();
    }
}

/// What the supervisor does after a death.
#[derive(Debug, PartialEq, Eq)]
enum RespawnDecision {
    /// Start another child after a pause.
    Respawn(Duration),
    /// Start another child after a pause, but callers do not wait for it: the model is defunct
    /// until a child is ready.
    RespawnDefunct(Duration),
    /// Start no other child.
    GiveUp,
}

fn respawn_decision(respawn: Respawn, strikes: u32) -> RespawnDecision {
    match respawn {
        Respawn::Never => RespawnDecision::GiveUp,
        Respawn::Backoff { give_up_after } if strikes >= give_up_after => {
            RespawnDecision::RespawnDefunct(MAX_BACKOFF)
        }
        Respawn::Backoff { .. } if strikes == 0 => RespawnDecision::Respawn(Duration::ZERO),
        Respawn::Backoff { .. } => RespawnDecision::Respawn(
            (MIN_BACKOFF * 2u32.saturating_pow(strikes - 1)).min(MAX_BACKOFF),
        ),
    }
}

/// Marks the child as defunct and reports it.
fn mark_defunct(shared: &RuntimeShared, child_number: usize, reason: &str) {
    let recovery = shared.state.defunct(child_number, reason);
    shared
        .observer
        .phase(child_number, Phase::Defunct { reason });
    if recovery == Recovery::Impossible {
        // There may never be a slot for the waiting callers.
        shared.reject_waiting();
    }
}

/// Calls `boot` with what the boot of this child needs.
async fn with_boot_context<R>(
    shared: &RuntimeShared,
    child_number: usize,
    gpus: Option<&Arc<dyn GpuLease>>,
    boot: impl AsyncFnOnce(&BootContext<'_>) -> R,
) -> R {
    let report = |phase: Phase<'_>| {
        match phase {
            Phase::Log { text, .. } => shared.state.setup_log(text),
            Phase::Loading { pid } => shared.state.loading(child_number, pid),
            Phase::Ready { .. }
            | Phase::Failed { .. }
            | Phase::Died { .. }
            | Phase::Defunct { .. } => {}
        }
        shared.observer.phase(child_number, phase);
    };
    let on_schema = |schema: &RawValue| {
        // Once per load: all children of the model read the same code.
        if shared.state.schema_read(schema) {
            for warning in schema_warnings(schema) {
                tracing::warn!(target: "model", "{warning}");
            }
        }
    };
    let RuntimeShared {
        launch,
        scratch,
        tasks,
        reaper,
        ..
    } = shared;
    let context = BootContext {
        launch,
        scratch,
        tasks,
        reaper,
        gpus,
        report: &report,
        on_schema: &on_schema,
    };
    boot(&context).await
}

/// Makes the slots of a ready child available to callers.
fn open_slots(shared: &Arc<RuntimeShared>, child_number: usize, child: &mut ReadyChild) {
    child.keep_alive();
    shared
        .state
        .ready(child_number, Arc::clone(&child.child), &child.ready);
    for socket in child.sockets.drain(..) {
        match child.ready.batch {
            None => shared.pool.add(PoolSlot::Socket(socket)),
            Some(limits) => {
                // Before the places are available: items may arrive at once.
                let registered = shared.batcher.add_child(limits);
                let run = batch::run_batches(Arc::clone(shared), socket, registered);
                shared.tasks.spawn(run);
            }
        }
    }
    if child.ready.batch.is_some() {
        for _ in 0..batch::capacity_of(&child.ready) {
            let place = PoolSlot::BatchPlace(Arc::clone(&child.child));
            shared.pool.add(place);
        }
    }
    shared.state.open();
}

/// How far a child is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchUntil {
    /// Until it gets no more jobs, or is dead.
    Retired,
    /// Until it is dead.
    Dead,
}

enum WatchEnd {
    /// The child gets no more jobs; it exits by itself after its running jobs.
    Retired,
    /// The child has been reaped.
    Dead { reason: String },
}

/// Reads the child's messages.
async fn watch(
    shared: &RuntimeShared,
    ready_child: &mut ReadyChild,
    until: WatchUntil,
) -> WatchEnd {
    let ReadyChild {
        child,
        process,
        control,
        gpus,
        ..
    } = ready_child;
    let mut reason = None;
    let mut exit_by = None;
    loop {
        let message = tokio::select! {
            // The retirement first: the child exits because of it.
            biased;
            () = child.retired(), if until == WatchUntil::Retired => {
                // Slots in use are closed when their jobs end; then the child exits by itself.
                shared.pool.retire(|slot| Arc::ptr_eq(slot.child(), child));
                return WatchEnd::Retired;
            }
            message = control.next() => message,
            end = child_gpus::ended(gpus.as_ref()), if until == WatchUntil::Retired => {
                child.retire(match end {
                    LeaseEnd::Failed(error) => Retirement::GpuError(error),
                    LeaseEnd::Revoked => Retirement::MemoryNeeded,
                });
                continue;
            }
            () = shared.stop.cancelled(), if exit_by.is_none() => {
                exit_by = Some(Instant::now() + SHUTDOWN_GRACE);
                child.shut_down();
                continue;
            }
            () = tokio::time::sleep_until(exit_by.unwrap_or_else(Instant::now)), if exit_by.is_some() => {
                child.kill();
                process.wait().await.ok();
                break;
            }
            ended = process.wait() => {
                let how = child.record_exit(ended);
                reason.get_or_insert(format!("the child died ({how})"));
                break;
            }
        };
        match message {
            Ok(ControlResponse::HealthcheckResult { id, status, error }) => {
                let health_error = match status {
                    HealthcheckStatus::Healthy => None,
                    HealthcheckStatus::Unhealthy => {
                        Some(error.unwrap_or_else(|| "unhealthy".to_owned()))
                    }
                };
                child.healthcheck_replied(id, health_error);
            }
            Ok(ControlResponse::Broken { reason }) => child.retire(Retirement::GpuError(reason)),
            Ok(ControlResponse::GpuMemory { reserved, peak }) => {
                if let Some(gpus) = &gpus {
                    gpus.allocated(AllocatorMemory { reserved, peak });
                }
            }
            Ok(ControlResponse::Fatal(fatal)) => reason = Some(fatal.reason),
            Ok(ControlResponse::DesiredConcurrency { slots }) => {
                child.set_desired_concurrency(slots);
                shared.state.desired_concurrency_changed.notify_one();
            }
            Ok(other) => log_message(&other),
            Err(error) => {
                // The child is dying, or the server can no longer control it: it must exit.
                let ended = match tokio::time::timeout(EXIT_GRACE, process.wait()).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        child.kill();
                        process.wait().await
                    }
                };
                let how = child.record_exit(ended);
                reason.get_or_insert(format!("the child died ({how}): {}", chain(&error)));
                break;
            }
        }
    }
    child.mark_dead();
    shared.pool.retire(|slot| slot.child().is_dead());
    WatchEnd::Dead {
        reason: reason.unwrap_or_default(),
    }
}
