//! Starts a child and waits until it is ready: `Init`, the logs of the setup, the slots, `Ready`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_core::LogSource;
use tidegate_core::gpu::{GpuId, GpuLease, GpuRefusal, ProcessRole, visible_devices};
use tidegate_core::planted;
use tidegate_ipc::control::{ChildInit, ControlRequest, ControlResponse, Fatal, Ready};
use tidegate_ipc::slot::WireLogSource;
use tokio::net::UnixListener;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::control_channel::{self, ControlReadError, ControlReader};
use super::process::ChildProcess;
use super::slot_socket::SlotSocket;
use super::spawn::{self, SpawnError, is_resource_shortage};
use crate::launch_config::LaunchConfig;
use crate::observer::Phase;
use crate::reaper::Reaper;
use crate::scratch::Scratch;

/// A child that is ready for jobs. It is killed when it is dropped, until [`Self::keep_alive`].
pub(crate) struct ReadyChild {
    pub(crate) child: Arc<ChildProcess>,
    pub(crate) process: tokio::process::Child,
    pub(crate) control: ControlReader,
    pub(crate) sockets: Vec<SlotSocket>,
    pub(crate) ready: Ready,
    /// The GPUs of the process, given back when it is gone.
    pub(crate) gpus: Option<Arc<dyn GpuLease>>,
    guard: KillOnDrop,
}

impl ReadyChild {
    /// Leaves the end of the process to the caller.
    pub(crate) fn keep_alive(&mut self) {
        self.guard.0 = None;
    }

    /// It was a spare, and is a child from now on: its GPU memory is not taken away any more.
    pub(crate) fn taken_by_child(&self) {
        if let Some(gpus) = &self.gpus {
            gpus.set_role(ProcessRole::Needed);
        }
    }
}

/// A child that has imported the model's modules and waits for its setup. It is killed when it is
/// dropped.
pub(crate) struct ImportedChild {
    booting: BootingChild,
    /// Whether the imports have initialised CUDA.
    pub(crate) uses_gpu: bool,
    /// Whether the imports have opened the GPU driver.
    has_driver: bool,
    /// The GPUs that the process sees; `None`: those that the server sees.
    visible: Option<Vec<GpuId>>,
}

impl ImportedChild {
    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.booting.child.pid()
    }

    /// The control channel and the process, to notice its death.
    pub(crate) fn channels(&mut self) -> (&mut ControlReader, &mut tokio::process::Child) {
        (&mut self.booting.control, &mut self.booting.process)
    }

    /// Whether the setup can use these GPUs: the process sees them, or has not asked the driver yet.
    pub(crate) fn can_use(&self, gpus: Option<&Arc<dyn GpuLease>>) -> bool {
        !self.has_driver || self.visible.as_deref() == gpus.map(|lease| lease.gpus())
    }

    /// Runs the setup. A child that does not become ready is killed.
    pub(crate) async fn set_up(
        mut self,
        context: &BootContext<'_>,
    ) -> Result<ReadyChild, BootError> {
        self.booting.use_gpus(context.gpus);
        let env = context.gpus.map(|lease| {
            visible_devices(lease.gpus()).map(|(name, value)| (name.to_owned(), value))
        });
        self.booting
            .child
            .set_up(env.into_iter().flatten().collect());
        context.until_ready(self.booting).await
    }
}

/// A started child that is not ready yet. It is killed when it is dropped.
struct BootingChild {
    child: Arc<ChildProcess>,
    process: tokio::process::Child,
    control: ControlReader,
    slots: UnixListener,
    /// The connected slots.
    sockets: Vec<SlotSocket>,
    socket_path: PathBuf,
    received_message: bool,
    gpus: Option<Arc<dyn GpuLease>>,
    guard: KillOnDrop,
}

impl BootingChild {
    /// Records the GPUs that the setup of the child will use.
    fn use_gpus(&mut self, gpus: Option<&Arc<dyn GpuLease>>) {
        self.gpus = gpus.cloned();
        if let Some(gpus) = &self.gpus {
            gpus.started(self.child.pid());
        }
    }
}

/// What a booting child has reached.
enum Milestone {
    Imported { uses_gpu: bool, has_driver: bool },
    Ready(Ready),
}

/// When the setup of a child runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetupTiming {
    AtOnce,
    OnRequest,
}

/// Why a child did not become ready. The texts begin like Cog's: `worker crashed`, `worker setup timed
/// out`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("the model gets no GPU")]
    NoGpu(#[from] GpuRefusal),
    #[error("{}", describe(.0))]
    Fatal(Fatal),
    #[error("worker crashed during setup ({0})")]
    Crashed(String),
    #[error(
        "worker crashed before it sent a message ({status}); run `tidegate doctor --python {python}` to check whether `{python}` has the tidegate package"
    )]
    Silent { status: String, python: String },
    #[error(
        "worker setup timed out after {0:?}; raise `--setup-timeout` if the model needs longer"
    )]
    TimedOut(Duration),
    #[error(
        "worker sent messages in an unexpected order; check that its tidegate package has the version of the server"
    )]
    OutOfStep,
    #[error("could not accept the connections of the child's slots")]
    Slots(#[source] std::io::Error),
}

impl BootError {
    /// Whether the machine lacks resources, so that a later attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Spawn(error) => error.is_transient(),
            Self::Slots(error) => is_resource_shortage(error),
            Self::NoGpu(_)
            | Self::Fatal(_)
            | Self::Crashed(_)
            | Self::Silent { .. }
            | Self::TimedOut(_)
            | Self::OutOfStep => false,
        }
    }
}

fn describe(fatal: &Fatal) -> String {
    match &fatal.traceback {
        Some(traceback) => format!("{}\n{}", traceback.trim_end(), fatal.reason),
        None => fatal.reason.clone(),
    }
}

/// What a boot needs, and the callbacks that it reports to.
pub(crate) struct BootContext<'a> {
    pub(crate) launch: &'a LaunchConfig,
    pub(crate) scratch: &'a Scratch,
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) reaper: &'a Arc<Reaper>,
    /// The GPUs of the child, if it is given some.
    pub(crate) gpus: Option<&'a Arc<dyn GpuLease>>,
    pub(crate) report: &'a (dyn Fn(Phase<'_>) + Sync),
    /// Called with the schema of the model before the model is loaded.
    pub(crate) on_schema: &'a (dyn Fn(&RawValue) + Sync),
}

impl BootContext<'_> {
    /// Starts a child and waits until it is ready. A child that does not become ready is killed.
    pub(crate) async fn run(&self) -> Result<ReadyChild, BootError> {
        let visible = self.gpus.map(|lease| lease.gpus());
        let mut booting = self.start(SetupTiming::AtOnce, visible)?;
        booting.use_gpus(self.gpus);
        self.until_ready(booting).await
    }

    /// Starts a child that sees these GPUs, and waits until it has imported the model's modules.
    pub(crate) async fn import(
        &self,
        visible: Option<Vec<GpuId>>,
    ) -> Result<ImportedChild, BootError> {
        let booting = self.start(SetupTiming::OnRequest, visible.as_deref())?;
        match self.until_milestone(booting).await? {
            (
                booting,
                Milestone::Imported {
                    uses_gpu,
                    has_driver,
                },
            ) => Ok(ImportedChild {
                booting,
                uses_gpu,
                has_driver,
                visible,
            }),
            (_, Milestone::Ready(_)) => Err(BootError::OutOfStep),
        }
    }

    async fn until_ready(&self, booting: BootingChild) -> Result<ReadyChild, BootError> {
        let (booting, milestone) = self.until_milestone(booting).await?;
        let Milestone::Ready(ready) = milestone else {
            return Err(BootError::OutOfStep);
        };
        if let Some(gpus) = &booting.gpus {
            gpus.ready();
        }
        Ok(ReadyChild {
            gpus: booting.gpus,
            child: booting.child,
            process: booting.process,
            control: booting.control,
            sockets: booting.sockets,
            ready,
            guard: booting.guard,
        })
    }

    fn start(
        &self,
        setup: SetupTiming,
        visible: Option<&[GpuId]>,
    ) -> Result<BootingChild, BootError> {
        let spawned = spawn::spawn(self.launch, self.scratch, self.reaper, visible)?;
        (self.report)(Phase::Loading { pid: spawned.pid });
        let (requests, rx) = mpsc::unbounded_channel();
        let init = self.init(&spawned.socket, setup);
        requests
            .send(ControlRequest::Init(init))
            .expect("the receiver is in scope");
        let child = Arc::new(ChildProcess::new(
            spawned.pid,
            spawned.tag,
            Arc::clone(self.reaper),
            requests,
        ));
        let guard = KillOnDrop(Some(Arc::clone(&child)));
        self.tasks
            .spawn(write_requests(spawned.control_in, rx, Arc::clone(&child)));
        Ok(BootingChild {
            child,
            process: spawned.process,
            control: ControlReader::new(spawned.control_out),
            slots: spawned.slots,
            sockets: Vec::new(),
            socket_path: spawned.socket,
            received_message: false,
            gpus: None,
            guard,
        })
    }

    /// Waits until the child has imported the model or is ready. A child that fails is killed.
    async fn until_milestone(
        &self,
        mut booting: BootingChild,
    ) -> Result<(BootingChild, Milestone), BootError> {
        let milestone = self.next_milestone(&mut booting);
        let result = match self.launch.setup_timeout {
            None => milestone.await,
            Some(limit) => tokio::time::timeout(limit, milestone)
                .await
                .unwrap_or(Err(BootError::TimedOut(limit))),
        };
        if !matches!(result, Ok(Milestone::Imported { .. })) {
            // All slots are connected, or never will be; the file may be missing already.
            tokio::fs::remove_file(&booting.socket_path).await.ok();
        }
        match result {
            Ok(milestone) => Ok((booting, milestone)),
            Err(error) => {
                let BootingChild { child, process, .. } = &mut booting;
                // A child that failed by itself exits with its own status; the others are killed.
                if !matches!(
                    error,
                    BootError::Crashed(_) | BootError::Silent { .. } | BootError::Fatal(_)
                ) {
                    child.kill();
                }
                let exited = tokio::time::timeout(Duration::from_secs(1), process.wait()).await;
                child.kill();
                let exited = match exited {
                    Ok(status) => status,
                    Err(_) => process.wait().await,
                };
                Err(self.with_status(error, exited.ok()))
            }
        }
    }

    fn init(&self, socket: &std::path::Path, setup: SetupTiming) -> ChildInit {
        let launch = self.launch;
        let num_slots = launch.slots;
        planted!(ExtraSlot, let num_slots = num_slots.map(|slots| slots + 1));
        ChildInit {
            model_dir: launch.model_dir.to_string_lossy().into_owned(),
            predictor_ref: launch.predictor_ref.clone(),
            train_ref: launch.train_ref.clone(),
            mode: launch.mode,
            max_slots: launch.max_slots,
            num_slots,
            socket: socket.to_string_lossy().into_owned(),
            requirements: launch.requirements.clone(),
            limits: launch.limits,
            batch: launch.batch,
            waits_for_setup: setup == SetupTiming::OnRequest,
        }
    }

    /// Adds the exit status of the process to the error that its exit caused.
    fn with_status(&self, error: BootError, status: Option<std::process::ExitStatus>) -> BootError {
        let status = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        match error {
            BootError::Crashed(why) if why.is_empty() => BootError::Crashed(status),
            BootError::Silent { python, .. } => BootError::Silent { status, python },
            other => other,
        }
    }

    async fn next_milestone(&self, booting: &mut BootingChild) -> Result<Milestone, BootError> {
        let BootingChild {
            child,
            control,
            slots,
            sockets,
            received_message,
            ..
        } = booting;
        loop {
            let message = tokio::select! {
                // The slots first: the child connects them all before it sends `Ready`.
                biased;
                accepted = slots.accept() => {
                    let (stream, _) = accepted.map_err(BootError::Slots)?;
                    sockets.push(SlotSocket::new(stream, sockets.len() as u32, Arc::clone(child)));
                    continue;
                }
                message = control.next() => message,
            };
            *received_message |= message.is_ok();
            match message {
                Ok(ControlResponse::Ready(ready)) => {
                    while sockets.len() < ready.slots.len() {
                        let (stream, _) = slots.accept().await.map_err(BootError::Slots)?;
                        sockets.push(SlotSocket::new(
                            stream,
                            sockets.len() as u32,
                            Arc::clone(child),
                        ));
                    }
                    return Ok(Milestone::Ready(ready));
                }
                Ok(ControlResponse::Imported {
                    uses_gpu,
                    has_driver,
                }) => {
                    return Ok(Milestone::Imported {
                        uses_gpu,
                        has_driver,
                    });
                }
                Ok(ControlResponse::Log { source, data }) => (self.report)(Phase::Log {
                    source: log_source(source),
                    text: &data,
                }),
                Ok(ControlResponse::DesiredConcurrency { slots }) => {
                    child.set_desired_concurrency(slots)
                }
                Ok(ControlResponse::Schema { schema }) => (self.on_schema)(&schema),
                Ok(ControlResponse::Fatal(fatal)) => return Err(BootError::Fatal(fatal)),
                Ok(other) => log_message(&other),
                Err(ControlReadError::Closed) if *received_message => {
                    return Err(BootError::Crashed(String::new()));
                }
                Err(ControlReadError::Closed) => {
                    return Err(BootError::Silent {
                        status: String::new(),
                        python: self.launch.python.display().to_string(),
                    });
                }
                Err(error) => {
                    return Err(BootError::Crashed(tidegate_core::chain(&error).to_string()));
                }
            }
        }
    }
}

/// Kills a child that is not ready yet when its boot fails or the server stops, and marks it as dead
/// for the tasks that wait for its death.
struct KillOnDrop(Option<Arc<ChildProcess>>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            child.kill();
            child.mark_dead();
            child.kill_descendants_now();
        }
    }
}

/// Writes requests to the child until it is dead.
async fn write_requests(
    mut to: ChildStdin,
    mut requests: mpsc::UnboundedReceiver<ControlRequest>,
    child: Arc<ChildProcess>,
) {
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(request) = request else { return };
                if control_channel::send(&mut to, &request).await.is_err() {
                    return;
                }
            }
            () = child.dead() => return,
        }
    }
}

pub(crate) fn log_source(source: WireLogSource) -> LogSource {
    match source {
        WireLogSource::Stdout => LogSource::Stdout,
        WireLogSource::Stderr => LogSource::Stderr,
    }
}

/// Logs messages that concern only the operator.
pub(crate) fn log_message(message: &ControlResponse) {
    match message {
        ControlResponse::Log { data, .. } => tracing::info!(target: "model", "{}", data.trim_end()),
        ControlResponse::ChildLog {
            target,
            level,
            message,
        } => match level.as_str() {
            "error" => tracing::error!(target: "child", from = target, "{message}"),
            "warn" => tracing::warn!(target: "child", from = target, "{message}"),
            "info" => tracing::info!(target: "child", from = target, "{message}"),
            _ => tracing::debug!(target: "child", from = target, "{message}"),
        },
        ControlResponse::DroppedLogs {
            count,
            interval_millis,
        } => {
            tracing::warn!(target: "model", count, interval_millis, "dropped log lines: the model printed them faster than the server read them");
        }
        ControlResponse::Failed { slot, error } => {
            tracing::warn!(target: "child", slot, error, "slot failed")
        }
        ControlResponse::Idle { .. }
        | ControlResponse::Cancelled { .. }
        | ControlResponse::ShuttingDown
        | ControlResponse::Schema { .. }
        | ControlResponse::DesiredConcurrency { .. }
        | ControlResponse::Imported { .. }
        | ControlResponse::Broken { .. }
        | ControlResponse::GpuMemory { .. }
        | ControlResponse::Ready(_)
        | ControlResponse::Fatal(_)
        | ControlResponse::HealthcheckResult { .. } => {
            tracing::trace!(target: "child", ?message, "control message")
        }
    }
}
