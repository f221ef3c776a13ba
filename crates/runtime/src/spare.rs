//! Keeps one process ready that takes the place of a child that dies (`--spare`).
//!
//! A spare is neither a child nor capacity: it has no number and runs no jobs, and the model is healthy
//! without it. It is started when all children are ready, so that it takes nothing from their setup. A
//! supervisor that needs a child takes the spare instead of starting a process; then the next spare is
//! started. A spare that cannot be started is reported and tried again later.
//!
//! GPUs belong to a process and not to the number of a child. A `Loaded` spare has a lease of its own, with
//! which it becomes a child. An `Imported` spare has none until its setup, which gets the lease of the
//! child that it replaces; if importing the model has opened the driver (`torch.cuda.is_available()` is
//! enough), the process can use only the GPUs that it saw then, and is given up for another child.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_core::gpu::AllocatorMemory;
use tidegate_core::pool_status::SpareKind;
use tidegate_ipc::control::ControlResponse;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::child::boot::{BootContext, BootError, ImportedChild, ReadyChild, log_message};
use crate::child::control_channel::ControlReadError;
use crate::child_gpus;
use crate::observer::{Phase, PoolEvent};
use crate::supervisor::{EXIT_GRACE, RuntimeShared, SHUTDOWN_GRACE};

/// The pause after a spare could not be started or died; it doubles each time.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// A process that takes the place of a child.
pub(crate) enum SpareChild {
    /// Its setup has not run yet.
    Imported(Box<ImportedChild>),
    /// It is ready for jobs.
    Loaded(Box<ReadyChild>),
}

/// Takes the spare of a model. A request that gets no spare is dropped.
pub(crate) struct SpareHandle(mpsc::UnboundedSender<SpareRequest>);

/// A request for the spare; dropping its sender refuses it.
pub(crate) enum SpareRequest {
    /// For a spare that is ready for jobs now.
    Ready(oneshot::Sender<Box<ReadyChild>>),
    /// For any spare, also one that is still being started.
    Any(oneshot::Sender<SpareChild>),
}

/// The requests for the spare of a model.
pub(crate) type SpareRequests = mpsc::UnboundedReceiver<SpareRequest>;

impl SpareHandle {
    /// A handle, and the requests for [`keep`].
    pub(crate) fn new() -> (Self, SpareRequests) {
        let (tx, rx) = mpsc::unbounded_channel();
        (Self(tx), rx)
    }

    /// Takes the spare if it is ready for jobs. Answered at once.
    pub(crate) async fn take_ready(&self) -> Option<Box<ReadyChild>> {
        let (reply, child) = oneshot::channel();
        self.0.send(SpareRequest::Ready(reply)).ok()?;
        let child = child.await.ok()?;
        child.taken_by_child();
        Some(child)
    }

    /// Takes the spare. Waits for one that is being started: it is ahead of a new process.
    pub(crate) async fn take(&self) -> Option<SpareChild> {
        let (reply, child) = oneshot::channel();
        self.0.send(SpareRequest::Any(reply)).ok()?;
        let spare = child.await.ok()?;
        if let SpareChild::Loaded(child) = &spare {
            child.taken_by_child();
        }
        Some(spare)
    }
}

/// How the life of a spare ended.
enum SpareEnd {
    /// It is a child now.
    Taken,
    /// It could not be started, or has died.
    Failed(String),
    /// The model stops.
    Stopped,
}

/// Keeps one spare until the model stops.
pub(crate) async fn keep(shared: Arc<RuntimeShared>, kind: SpareKind, mut requests: SpareRequests) {
    let mut pause = MIN_PAUSE;
    while wait_until_useful(&shared, &mut requests).await {
        let end = keep_one(&shared, kind, &mut requests).await;
        match end {
            SpareEnd::Taken => {
                pause = MIN_PAUSE;
                shared.state.spare_gone(kind);
            }
            SpareEnd::Stopped => return shared.state.spare_gone(kind),
            SpareEnd::Failed(reason) => {
                shared.state.spare_failed(kind, &reason);
                shared.observer.pool_event(PoolEvent::SpareFailed {
                    reason: &reason,
                    pause,
                });
                refuse_until(&mut requests, &shared, tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

/// Waits until all children are ready; returns `false` if the model stops.
async fn wait_until_useful(shared: &RuntimeShared, requests: &mut SpareRequests) -> bool {
    while !shared.stop.is_cancelled() {
        if shared.state.may_start_spare() && !shared.pool.is_closed() {
            return true;
        }
        refuse_until(requests, shared, shared.state.children_changed.notified()).await;
    }
    false
}

/// Drops the requests that arrive until `until` is ready or the model stops.
async fn refuse_until(
    requests: &mut SpareRequests,
    shared: &RuntimeShared,
    until: impl Future<Output = ()>,
) {
    let mut until = std::pin::pin!(until);
    loop {
        tokio::select! {
            () = &mut until => return,
            () = shared.stop.cancelled() => return,
            Some(request) = requests.recv() => drop(request),
        }
    }
}

async fn keep_one(
    shared: &RuntimeShared,
    kind: SpareKind,
    requests: &mut SpareRequests,
) -> SpareEnd {
    let began = Instant::now();
    let mut boot = std::pin::pin!(start(shared, kind));
    // The first supervisor that waits for the spare; later ones start a process.
    let mut taker = None;
    let booted = loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return SpareEnd::Stopped,
            booted = &mut boot => break booted,
            Some(request) = requests.recv() => match request {
                SpareRequest::Any(reply) if taker.is_none() => taker = Some(reply),
                SpareRequest::Any(_) | SpareRequest::Ready(_) => {}
            },
        }
    };
    let spare = match booted {
        Ok(spare) => spare,
        Err(error) => return SpareEnd::Failed(chain(&error).to_string()),
    };
    let spare = match taker {
        None => spare,
        Some(reply) => match reply.send(spare) {
            Ok(()) => return SpareEnd::Taken,
            Err(spare) => spare,
        },
    };
    shared.state.spare_ready(kind);
    shared.observer.pool_event(PoolEvent::SpareReady {
        after: began.elapsed(),
    });
    hold(shared, spare, requests).await
}

/// Starts the process of a spare.
async fn start(shared: &RuntimeShared, kind: SpareKind) -> Result<SpareChild, BootError> {
    let report = |phase: Phase<'_>| match phase {
        Phase::Log { text, .. } => tracing::info!(target: "model", "{}", text.trim_end()),
        Phase::Loading { pid } => shared.state.spare_starting(kind, pid),
        Phase::Ready { .. } | Phase::Failed { .. } | Phase::Died { .. } | Phase::Defunct { .. } => {
        }
    };
    let gpus = match kind {
        SpareKind::Imported => None,
        SpareKind::Loaded => shared.gpus.acquire_spare().await?,
    };
    // Without a lease it sees those of the child that it is most likely to replace.
    let visible = match &gpus {
        Some(lease) => Some(lease.gpus().to_vec()),
        None => shared.state.first_gpus(),
    };
    shared
        .state
        .spare_gpus(kind, visible.as_deref().unwrap_or_default());
    let context = BootContext {
        gpus: gpus.as_ref(),
        launch: &shared.launch,
        scratch: &shared.scratch,
        tasks: &shared.tasks,
        reaper: &shared.reaper,
        report: &report,
        on_schema: &|_| {},
    };
    match kind {
        SpareKind::Imported => {
            let child = context.import(visible).await?;
            if child.uses_gpu {
                tracing::warn!(
                    "importing the model initialises CUDA, so its spare occupies GPU memory; move this work to `setup`"
                );
            }
            Ok(SpareChild::Imported(Box::new(child)))
        }
        SpareKind::Loaded => Ok(SpareChild::Loaded(Box::new(context.run().await?))),
    }
}

/// Keeps a started spare until a supervisor takes it.
async fn hold(
    shared: &RuntimeShared,
    mut spare: SpareChild,
    requests: &mut SpareRequests,
) -> SpareEnd {
    let lease = match &spare {
        SpareChild::Loaded(child) => child.gpus.clone(),
        SpareChild::Imported(_) => None,
    };
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {
                end(spare).await;
                return SpareEnd::Stopped;
            }
            // Before the requests: a dead spare must not be handed over.
            event = spare.next() => match event {
                Ok(message) => spare.note(&message),
                Err(reason) => return SpareEnd::Failed(reason),
            },
            reason = child_gpus::ended(lease.as_ref()) => {
                end(spare).await;
                return SpareEnd::Failed(reason.to_string());
            }
            Some(request) = requests.recv() => match (request, spare) {
                (SpareRequest::Ready(reply), SpareChild::Loaded(child)) => match reply.send(child) {
                    Ok(()) => return SpareEnd::Taken,
                    Err(child) => spare = SpareChild::Loaded(child),
                },
                (SpareRequest::Ready(_), other) => spare = other,
                (SpareRequest::Any(reply), any) => match reply.send(any) {
                    Ok(()) => return SpareEnd::Taken,
                    Err(any) => spare = any,
                },
            },
        }
    }
}

/// Ends a spare.
async fn end(spare: SpareChild) {
    // A spare without setup has nothing to clean up: it is killed when it is dropped.
    if let SpareChild::Loaded(mut child) = spare {
        child.child.shut_down();
        tokio::time::timeout(SHUTDOWN_GRACE, child.process.wait())
            .await
            .ok();
    }
}

impl SpareChild {
    /// The next message of the process; an error says how it died. Cancel-safe.
    async fn next(&mut self) -> Result<ControlResponse, String> {
        let (control, process) = match self {
            Self::Imported(child) => child.channels(),
            Self::Loaded(child) => (&mut child.control, &mut child.process),
        };
        tokio::select! {
            message = control.next() => match message {
                Ok(message) => Ok(message),
                Err(ControlReadError::Closed) => {
                    let status = tokio::time::timeout(EXIT_GRACE, process.wait()).await;
                    Err(match status {
                        Ok(Ok(status)) => format!("the spare died ({status})"),
                        Ok(Err(_)) | Err(_) => "the spare closed its control channel".to_owned(),
                    })
                }
                Err(error) => Err(format!("the spare failed: {}", chain(&error))),
            },
            ended = process.wait() => Err(match ended {
                Ok(status) => format!("the spare died ({status})"),
                Err(error) => format!("the spare died ({error})"),
            }),
        }
    }

    /// Handles a message of a process that waits.
    fn note(&self, message: &ControlResponse) {
        match (self, message) {
            (Self::Loaded(child), ControlResponse::DesiredConcurrency { slots }) => {
                child.child.set_desired_concurrency(*slots);
            }
            (Self::Loaded(child), ControlResponse::GpuMemory { reserved, peak }) => {
                if let Some(gpus) = &child.gpus {
                    gpus.allocated(AllocatorMemory {
                        reserved: *reserved,
                        peak: *peak,
                    });
                }
            }
            (_, message) => log_message(message),
        }
    }
}
