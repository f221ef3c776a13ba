//! Keeps one child alive: boots it, listens to it, buries it, replaces it.
//!
//! A child that was given jobs is replaced at once: a job may have killed it, and jobs of all kinds come
//! along. One that dies again and again without having had a single job is replaced after growing
//! pauses, and given up in the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_core::chain;
use tidegate_core::planted::{Planted, planted};
use tidegate_core::pool_status::DeathCause;
use tidegate_ipc::control::{ControlResponse, HealthcheckStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::launch::{LaunchConfig, Observer, Phase, Respawn};
use crate::leftovers::Family;
use crate::parent::boot::{Boot, BootError, Booted, note};
use crate::parent::courier::Seat;
use crate::parent::link::Link;
use crate::scratch::Scratch;
use crate::slots::Pool;
use crate::state::{Hope, State};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause when the machine has no descriptors, memory or processes left for a child.
const SHORT_OF_RESOURCES: Duration = Duration::from_millis(500);
/// A child that has lived this long was not broken from the start.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// How often ended processes of the model's daemons are let go of.
const TIDY_EVERY: Duration = Duration::from_secs(15);

/// Children that are told to leave get this long to do it by themselves.
const CHILD_GRACE: Duration = Duration::from_secs(2);
/// A child that has closed its channel is dying; this long it is left to do so in its own way, so that
/// we learn how it died.
pub(crate) const LAST_BREATH: Duration = Duration::from_millis(200);

/// What all the children of a model share.
pub(crate) struct Shared {
    pub(crate) launch: LaunchConfig,
    pub(crate) scratch: Scratch,
    pub(crate) pool: Pool<Link, Seat>,
    pub(crate) state: State,
    pub(crate) family: Arc<Family>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tasks: TaskTracker,
    /// No more children, and those that are there go.
    pub(crate) stop: CancellationToken,
}

/// Keeps child number `worker` alive until it is told to stop.
pub(crate) async fn keep(shared: Arc<Shared>, worker: usize) {
    let mut strikes = 0;
    let mut was_ready = false;
    while !shared.stop.is_cancelled() {
        let began = Instant::now();
        let booted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            booted = boot(&shared, worker) => booted,
        };
        let (reason, cause, innocent) = match booted {
            Err(error) if error.is_passing() => {
                // Nothing was learned about the model; it is tried again until the machine has room.
                tracing::warn!(error = %chain(&error), "cannot start a child now");
                tokio::select! {
                    () = tokio::time::sleep(SHORT_OF_RESOURCES) => {}
                    () = shared.stop.cancelled() => return,
                }
                continue;
            }
            Ok(mut booted) => {
                was_ready = true;
                let child = Arc::clone(&booted.child);
                serve(&shared, worker, &mut booted);
                shared.observer.phase(
                    worker,
                    Phase::Ready {
                        after: began.elapsed(),
                        slots: booted.ready.slots.len(),
                    },
                );
                let ready = Instant::now();
                let reason = live(&shared, worker, booted).await;
                if child.has_retired() {
                    strikes = 0;
                    shared.observer.phase(
                        worker,
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
                    child.used.load(Ordering::Relaxed) || ready.elapsed() > LONG_LIFE,
                )
            }
            Err(error) if !was_ready => {
                let reason = chain(&error).to_string();
                shared.state.died(DeathCause::Setup);
                shared.state.setup_failed(worker, &reason);
                shared.pool.send_line_away();
                shared
                    .observer
                    .phase(worker, Phase::Failed { reason: &reason });
                return;
            }
            Err(error) => (chain(&error).to_string(), DeathCause::Setup, false),
        };
        // Of a model that leaves, a child that has given back its last slot is not replaced.
        if shared.stop.is_cancelled() || shared.pool.is_closed() {
            return;
        }
        shared.state.died(cause);
        strikes = if innocent { 0 } else { strikes + 1 };
        let pause = match after_death(shared.launch.respawn, strikes) {
            After::Again(pause) if !planted(Planted::NotReplaced) => {
                shared.state.starting(worker, &reason);
                shared.observer.phase(
                    worker,
                    Phase::Died {
                        reason: &reason,
                        pause,
                    },
                );
                pause
            }
            After::Doubtful(pause) => {
                lose_hope(&shared, worker, &reason);
                pause
            }
            After::Again(_) | After::Never => return lose_hope(&shared, worker, &reason),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Lets go of processes that the model has left to us and that have ended since.
pub(crate) async fn tidy(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TIDY_EVERY) => {}
            () = shared.stop.cancelled() => return,
        }
        let family = Arc::clone(&shared.family);
        tokio::task::spawn_blocking(move || family.tidy())
            .await
            .ok();
    }
}

/// What follows a death.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// Another child, after a pause.
    Again(Duration),
    /// Another child, but nobody should wait for it: the model is defunct until one is ready.
    Doubtful(Duration),
    /// Nothing.
    Never,
}

fn after_death(respawn: Respawn, strikes: u32) -> After {
    match respawn {
        Respawn::Never => After::Never,
        Respawn::Backoff { give_up_after } if strikes >= give_up_after => {
            After::Doubtful(LONGEST_PAUSE)
        }
        Respawn::Backoff { .. } if strikes == 0 => After::Again(Duration::ZERO),
        Respawn::Backoff { .. } => {
            After::Again((FIRST_PAUSE * 2u32.saturating_pow(strikes - 1)).min(LONGEST_PAUSE))
        }
    }
}

/// Tells everybody that the child may not come back.
fn lose_hope(shared: &Shared, worker: usize, reason: &str) {
    let hope = shared.state.defunct(worker, reason);
    shared.observer.phase(worker, Phase::Defunct { reason });
    if hope == Hope::None {
        // Nobody may ever come for those who wait.
        shared.pool.send_line_away();
    }
}

async fn boot(shared: &Shared, worker: usize) -> Result<Booted, BootError> {
    let tell = |phase: Phase<'_>| {
        match phase {
            Phase::Log { text, .. } => shared.state.setup_log(text),
            Phase::Loading { pid } => shared.state.loading(worker, pid),
            Phase::Ready { .. }
            | Phase::Failed { .. }
            | Phase::Died { .. }
            | Phase::Defunct { .. } => {}
        }
        shared.observer.phase(worker, phase);
    };
    let describe = |schema: &RawValue| shared.state.described(schema);
    let Shared {
        launch,
        scratch,
        tasks,
        family,
        ..
    } = shared;
    Boot {
        launch,
        scratch,
        tasks,
        family,
        tell: &tell,
        describe: &describe,
    }
    .run()
    .await
}

/// Opens the child's slots to callers.
fn serve(shared: &Shared, worker: usize, booted: &mut Booted) {
    shared
        .state
        .ready(worker, Arc::clone(&booted.child), &booted.ready);
    for link in booted.links.drain(..) {
        shared.pool.add(link);
    }
    shared.state.open();
}

/// Listens to the child until it is dead; says how it died.
async fn live(shared: &Shared, worker: usize, booted: Booted) -> String {
    let Booted {
        child,
        mut process,
        mut control,
        ..
    } = booted;
    let mut reason = None;
    let mut leave_by = None;
    let mut retired = false;
    loop {
        let message = tokio::select! {
            message = control.next() => message,
            () = shared.stop.cancelled(), if leave_by.is_none() => {
                leave_by = Some(Instant::now() + CHILD_GRACE);
                child.shut_down();
                continue;
            }
            () = child.retired(), if !retired => {
                retired = true;
                reason = Some("the model has asked for another child".to_owned());
                // Those in use are closed when their jobs are over; then the child ends by itself.
                shared.pool.retire(|link| Arc::ptr_eq(&link.child, &child));
                continue;
            }
            () = tokio::time::sleep_until(leave_by.unwrap_or_else(Instant::now)), if leave_by.is_some() => {
                child.kill();
                process.wait().await.ok();
                break;
            }
            ended = process.wait() => {
                let how = child.post_mortem(ended);
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
                child.healthcheck_answered(id, health_error);
            }
            Ok(ControlResponse::Fatal(fatal)) => reason = Some(fatal.reason),
            Ok(ControlResponse::DesiredConcurrency { slots }) => {
                child.wants(slots);
                shared.state.desired_concurrency_changed.notify_one();
            }
            Ok(other) => note(&other),
            Err(error) => {
                // Either it is dying already or it can no longer be steered; both end the same way.
                let ended = match tokio::time::timeout(LAST_BREATH, process.wait()).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        child.kill();
                        process.wait().await
                    }
                };
                let how = child.post_mortem(ended);
                reason.get_or_insert(format!("the child died ({how}): {}", chain(&error)));
                break;
            }
        }
    }
    child.bury();
    shared.pool.retire(|link| link.child.is_dead());
    let reason = reason.unwrap_or_default();
    // At once: until it is known, callers would be told that every slot is busy.
    shared.state.starting(worker, &reason);
    // Whatever the model has started goes with it.
    child.kill_leftovers().await;
    reason
}
