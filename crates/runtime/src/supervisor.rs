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
use tidegate_core::gpu::GpuLease;
use tidegate_core::planted;
use tidegate_core::pool_status::DeathCause;
use tidegate_ipc::control::{ControlResponse, HealthcheckStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::child::boot::{BootContext, BootError, ReadyChild, log_message};
use crate::child::queued_caller::QueuedCaller;
use crate::child::slot_socket::SlotSocket;
use crate::child_gpus::ChildGpus;
use crate::launch_config::{LaunchConfig, Respawn};
use crate::model_state::{ModelState, Recovery};
use crate::observer::{Observer, Phase};
use crate::reaper::Reaper;
use crate::schema::schema_warnings;
use crate::scratch::Scratch;
use crate::slots::Pool;

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
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// How long the server waits for the exit of a child that has closed its channel, before it kills
/// the child: the exit status shows how it died.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(200);

/// State that all children of a model share.
pub(crate) struct RuntimeShared {
    pub(crate) launch: LaunchConfig,
    pub(crate) scratch: Scratch,
    pub(crate) pool: Pool<SlotSocket, QueuedCaller>,
    pub(crate) state: ModelState,
    pub(crate) reaper: Arc<Reaper>,
    pub(crate) gpus: ChildGpus,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the model stops: no child is started, and running children exit.
    pub(crate) stop: CancellationToken,
}

/// Keeps child number `child_number` alive until the model stops.
pub(crate) async fn supervise(shared: Arc<RuntimeShared>, child_number: usize) {
    let mut strikes = 0;
    let mut was_ready = false;
    // Kept until this function returns: the processes that replace each other have the same GPUs.
    let mut gpus = None;
    while !shared.stop.is_cancelled() {
        let started = Instant::now();
        let booted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            booted = boot(&shared, child_number, &mut gpus) => booted,
        };
        let (reason, cause, is_strike) = match booted {
            Err(error) if error.is_transient() => {
                // The failure says nothing about the model: retry until the machine has resources.
                tracing::warn!(error = %chain(&error), "failed to start child, retrying");
                tokio::select! {
                    () = tokio::time::sleep(RESOURCE_RETRY_PAUSE) => {}
                    () = shared.stop.cancelled() => return,
                }
                continue;
            }
            Ok(mut ready_child) => {
                was_ready = true;
                let child = Arc::clone(&ready_child.child);
                if let Some(gpus) = &gpus {
                    gpus.ready();
                }
                open_slots(&shared, child_number, &mut ready_child);
                shared.observer.phase(
                    child_number,
                    Phase::Ready {
                        after: started.elapsed(),
                        slots: ready_child.ready.slots.len(),
                    },
                );
                let ready_at = Instant::now();
                let reason = watch(&shared, child_number, ready_child).await;
                if child.has_retired() {
                    strikes = 0;
                    shared.observer.phase(
                        child_number,
                        Phase::Died {
                            reason: &reason,
                            pause: Duration::ZERO,
                        },
                    );
                    continue;
                }
                (
                    reason,
                    child.cause(),
                    !child.used.load(Ordering::Relaxed) && ready_at.elapsed() <= STABLE_AFTER,
                )
            }
            Err(error) if !was_ready => {
                let reason = chain(&error).to_string();
                shared.state.died(DeathCause::Setup);
                shared.state.setup_failed(child_number, &reason);
                shared.pool.reject_waiters();
                shared
                    .observer
                    .phase(child_number, Phase::Failed { reason: &reason });
                return;
            }
            Err(error) => (chain(&error).to_string(), DeathCause::Setup, true),
        };
        // A model that is being unloaded needs no replacement.
        if shared.stop.is_cancelled() || shared.pool.is_closed() {
            return;
        }
        shared.state.died(cause);
        strikes = if is_strike { strikes + 1 } else { 0 };
        let decision = respawn_decision(shared.launch.respawn, strikes);
        planted!(NotReplaced, let decision = RespawnDecision::GiveUp);
        let pause = match decision {
            RespawnDecision::Respawn(pause) => {
                shared.state.starting(child_number, &reason);
                shared.observer.phase(
                    child_number,
                    Phase::Died {
                        reason: &reason,
                        pause,
                    },
                );
                pause
            }
            RespawnDecision::RespawnDefunct(pause) => {
                mark_defunct(&shared, child_number, &reason);
                pause
            }
            RespawnDecision::GiveUp => {
                return mark_defunct(&shared, child_number, &reason);
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => return,
        }
    }
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
        shared.pool.reject_waiters();
    }
}

async fn boot(
    shared: &RuntimeShared,
    child_number: usize,
    gpus: &mut Option<Arc<dyn GpuLease>>,
) -> Result<ReadyChild, BootError> {
    match gpus {
        Some(gpus) => gpus.memory_returned().await,
        None => *gpus = shared.gpus.acquire(child_number).await?,
    }
    let gpus = gpus.as_deref();
    if let Some(gpus) = gpus {
        shared.state.gpus_assigned(child_number, gpus.gpus());
    }
    let report = |phase: Phase<'_>| {
        match phase {
            Phase::Log { text, .. } => shared.state.setup_log(text),
            Phase::Loading { pid } => {
                shared.state.loading(child_number, pid);
                if let Some(gpus) = gpus {
                    gpus.started(pid);
                }
            }
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
    BootContext {
        launch,
        scratch,
        tasks,
        reaper,
        gpus,
        report: &report,
        on_schema: &on_schema,
    }
    .run()
    .await
}

/// Makes the slots of a ready child available to callers.
fn open_slots(shared: &RuntimeShared, child_number: usize, child: &mut ReadyChild) {
    shared
        .state
        .ready(child_number, Arc::clone(&child.child), &child.ready);
    for socket in child.sockets.drain(..) {
        shared.pool.add(socket);
    }
    shared.state.open();
}

/// Reads the child's messages until it is dead; returns how it died.
async fn watch(shared: &RuntimeShared, child_number: usize, ready_child: ReadyChild) -> String {
    let ReadyChild {
        child,
        mut process,
        mut control,
        ..
    } = ready_child;
    let mut reason = None;
    let mut exit_by = None;
    let mut retired = false;
    loop {
        let message = tokio::select! {
            message = control.next() => message,
            () = shared.stop.cancelled(), if exit_by.is_none() => {
                exit_by = Some(Instant::now() + SHUTDOWN_GRACE);
                child.shut_down();
                continue;
            }
            () = child.retired(), if !retired => {
                retired = true;
                reason = Some("the model requested a new process".to_owned());
                // Slots in use are closed when their jobs end; then the child exits by itself.
                shared.pool.retire(|socket| Arc::ptr_eq(&socket.child, &child));
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
    shared.pool.retire(|socket| socket.child.is_dead());
    let reason = reason.unwrap_or_default();
    // Before anything else: until the state changes, callers get the answer that all slots are in
    // use.
    shared.state.starting(child_number, &reason);
    // Processes that the model started are killed with it.
    child.kill_descendants().await;
    reason
}
