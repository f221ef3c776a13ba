//! Starts a child and waits until it is ready: `Init`, the logs of the setup, the slots, `Ready`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_core::LogSource;
use tidegate_core::gpu::{GpuLease, GpuRefusal};
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

/// A child that is ready for jobs.
pub(crate) struct ReadyChild {
    pub(crate) child: Arc<ChildProcess>,
    pub(crate) process: tokio::process::Child,
    pub(crate) control: ControlReader,
    pub(crate) sockets: Vec<SlotSocket>,
    pub(crate) ready: Ready,
}

/// Why a child did not become ready. The texts begin like Cog's: `worker crashed`, `worker setup timed
/// out`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("the model gets no GPU: {0}")]
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
            | Self::TimedOut(_) => false,
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
    pub(crate) gpus: Option<&'a dyn GpuLease>,
    pub(crate) report: &'a (dyn Fn(Phase<'_>) + Sync),
    /// Called with the schema of the model before the model is loaded.
    pub(crate) on_schema: &'a (dyn Fn(&RawValue) + Sync),
}

impl BootContext<'_> {
    /// Starts a child and waits until it is ready. A child that does not become ready is killed.
    pub(crate) async fn run(&self) -> Result<ReadyChild, BootError> {
        let spawned = spawn::spawn(self.launch, self.scratch, self.reaper, self.gpus)?;
        (self.report)(Phase::Loading { pid: spawned.pid });
        let (requests, rx) = mpsc::unbounded_channel();
        let init = self.init(&spawned.socket);
        requests
            .send(ControlRequest::Init(init))
            .expect("the receiver is in scope");
        let child = Arc::new(ChildProcess::new(
            spawned.pid,
            spawned.tag,
            Arc::clone(self.reaper),
            requests,
        ));
        let mut kill_on_drop = KillOnDrop(Some(Arc::clone(&child)));
        self.tasks
            .spawn(write_requests(spawned.control_in, rx, Arc::clone(&child)));

        let mut process = spawned.process;
        let mut control = ControlReader::new(spawned.control_out);
        let until_ready = self.until_ready(&mut control, spawned.slots, &child);
        let result = match self.launch.setup_timeout {
            None => until_ready.await,
            Some(limit) => tokio::time::timeout(limit, until_ready)
                .await
                .unwrap_or(Err(BootError::TimedOut(limit))),
        };
        // All slots are connected, or never will be; the file may be missing already.
        tokio::fs::remove_file(&spawned.socket).await.ok();
        match result {
            Ok((ready, sockets)) => {
                kill_on_drop.0 = None;
                Ok(ReadyChild {
                    child,
                    process,
                    control,
                    sockets,
                    ready,
                })
            }
            Err(error) => {
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

    fn init(&self, socket: &std::path::Path) -> ChildInit {
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

    async fn until_ready(
        &self,
        control: &mut ControlReader,
        slots: UnixListener,
        child: &Arc<ChildProcess>,
    ) -> Result<(Ready, Vec<SlotSocket>), BootError> {
        let mut sockets = Vec::new();
        let mut received_message = false;
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
            received_message |= message.is_ok();
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
                    return Ok((ready, sockets));
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
                Err(ControlReadError::Closed) if received_message => {
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
        | ControlResponse::Ready(_)
        | ControlResponse::Fatal(_)
        | ControlResponse::HealthcheckResult { .. } => {
            tracing::trace!(target: "child", ?message, "control message")
        }
    }
}
