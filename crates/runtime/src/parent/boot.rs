//! From a bare process to a child that takes jobs: `ChildInit`, the setup's logs, the slots, `Ready`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tidegate_core::LogSource;
use tidegate_core::planted::{Planted, planted};
use tidegate_ipc::control::{ChildInit, ControlRequest, ControlResponse, Fatal, Ready};
use tidegate_ipc::slot::WireLogSource;
use tokio::net::UnixListener;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::child::Child;
use super::control::{self, ReadError, Reader};
use super::link::Link;
use super::spawn::{self, SpawnError, is_shortage};
use crate::launch::{LaunchConfig, Phase};
use crate::leftovers::Family;
use crate::scratch::Scratch;

/// A child that takes jobs.
pub(crate) struct Booted {
    pub(crate) child: Arc<Child>,
    pub(crate) process: tokio::process::Child,
    pub(crate) control: Reader,
    pub(crate) links: Vec<Link>,
    pub(crate) ready: Ready,
}

/// Why there is no such child.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{}", describe(.0))]
    Fatal(Fatal),
    #[error("worker crashed during setup ({0})")]
    Crashed(String),
    #[error(
        "worker crashed before it said a word ({status}); if `{python}` lacks the tidegate package, `tidegate doctor --python {python}` tells"
    )]
    Silent { status: String, python: String },
    #[error("worker setup timed out after {0:?}; raise --setup-timeout if it needs longer")]
    TimedOut(Duration),
    #[error("could not take the child's slots")]
    Slots(#[source] std::io::Error),
}

impl BootError {
    /// Whether it is the machine's fault and may be over in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Spawn(error) => error.is_passing(),
            Self::Slots(error) => is_shortage(error),
            Self::Fatal(_) | Self::Crashed(_) | Self::Silent { .. } | Self::TimedOut(_) => false,
        }
    }
}

fn describe(fatal: &Fatal) -> String {
    match &fatal.traceback {
        Some(traceback) => format!("{}\n{}", traceback.trim_end(), fatal.reason),
        None => fatal.reason.clone(),
    }
}

/// What a boot needs and whom it tells.
pub(crate) struct Boot<'a> {
    pub(crate) launch: &'a LaunchConfig,
    pub(crate) scratch: &'a Scratch,
    pub(crate) tasks: &'a TaskTracker,
    pub(crate) family: &'a Arc<Family>,
    pub(crate) tell: &'a (dyn Fn(Phase<'_>) + Sync),
    /// Told what the model takes, before it is loaded.
    pub(crate) describe: &'a (dyn Fn(&RawValue) + Sync),
}

impl Boot<'_> {
    /// Starts a child and waits until it is ready. A child that does not get there is killed.
    pub(crate) async fn run(&self) -> Result<Booted, BootError> {
        let spawned = spawn::spawn(self.launch, self.scratch, self.family)?;
        (self.tell)(Phase::Loading { pid: spawned.pid });
        let (requests, rx) = mpsc::unbounded_channel();
        let init = self.init(&spawned.socket);
        requests
            .send(ControlRequest::Init(init))
            .expect("the receiver is right here");
        let child = Arc::new(Child::new(
            spawned.pid,
            spawned.mark,
            Arc::clone(self.family),
            requests,
        ));
        let mut unborn = Unborn(Some(Arc::clone(&child)));
        self.tasks
            .spawn(write_requests(spawned.control_in, rx, Arc::clone(&child)));

        let mut process = spawned.process;
        let mut control = Reader::new(spawned.control_out);
        let until_ready = self.until_ready(&mut control, spawned.slots, &child);
        let result = match self.launch.setup_timeout {
            None => until_ready.await,
            Some(limit) => tokio::time::timeout(limit, until_ready)
                .await
                .unwrap_or(Err(BootError::TimedOut(limit))),
        };
        // The path has served its purpose; a missing file is no harm.
        tokio::fs::remove_file(&spawned.socket).await.ok();
        match result {
            Ok((ready, links)) => {
                unborn.0 = None;
                Ok(Booted {
                    child,
                    process,
                    control,
                    links,
                    ready,
                })
            }
            Err(error) => {
                // A child that gave up exits by itself with its own status; the others are made to.
                if !matches!(
                    error,
                    BootError::Crashed(_) | BootError::Silent { .. } | BootError::Fatal(_)
                ) {
                    child.kill();
                }
                let ended = tokio::time::timeout(Duration::from_secs(1), process.wait()).await;
                child.kill();
                let ended = match ended {
                    Ok(status) => status,
                    Err(_) => process.wait().await,
                };
                Err(self.with_status(error, ended.ok()))
            }
        }
    }

    fn init(&self, socket: &std::path::Path) -> ChildInit {
        let launch = self.launch;
        ChildInit {
            model_dir: launch.model_dir.to_string_lossy().into_owned(),
            predictor_ref: launch.predictor_ref.clone(),
            train_ref: launch.train_ref.clone(),
            mode: launch.mode,
            max_slots: launch.max_slots,
            num_slots: launch
                .slots
                .map(|slots| slots + u32::from(planted(Planted::ExtraSlot))),
            socket: socket.to_string_lossy().into_owned(),
            limits: launch.limits,
        }
    }

    /// Puts how the process ended into the error that its end caused.
    fn with_status(&self, error: BootError, status: Option<std::process::ExitStatus>) -> BootError {
        let how = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        match error {
            BootError::Crashed(why) if why.is_empty() => BootError::Crashed(how),
            BootError::Silent { python, .. } => BootError::Silent {
                status: how,
                python,
            },
            other => other,
        }
    }

    async fn until_ready(
        &self,
        control: &mut Reader,
        slots: UnixListener,
        child: &Arc<Child>,
    ) -> Result<(Ready, Vec<Link>), BootError> {
        let mut links = Vec::new();
        let mut heard = false;
        loop {
            let message = tokio::select! {
                // The slots first: when `Ready` comes they are all connected.
                biased;
                accepted = slots.accept() => {
                    let (stream, _) = accepted.map_err(BootError::Slots)?;
                    links.push(Link::new(stream, links.len() as u32, Arc::clone(child)));
                    continue;
                }
                message = control.next() => message,
            };
            heard |= message.is_ok();
            match message {
                Ok(ControlResponse::Ready(ready)) => {
                    while links.len() < ready.slots.len() {
                        let (stream, _) = slots.accept().await.map_err(BootError::Slots)?;
                        links.push(Link::new(stream, links.len() as u32, Arc::clone(child)));
                    }
                    return Ok((ready, links));
                }
                Ok(ControlResponse::Log { source, data }) => (self.tell)(Phase::Log {
                    source: log_source(source),
                    text: &data,
                }),
                Ok(ControlResponse::DesiredConcurrency { slots }) => child.wants(slots),
                Ok(ControlResponse::Schema { schema }) => (self.describe)(&schema),
                Ok(ControlResponse::Fatal(fatal)) => return Err(BootError::Fatal(fatal)),
                Ok(other) => note(&other),
                Err(ReadError::Closed) if heard => return Err(BootError::Crashed(String::new())),
                Err(ReadError::Closed) => {
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

/// A child that is not ready yet. When its boot is given up, by a failure or by the end of the server,
/// it is killed and everybody who waits for its death is told.
struct Unborn(Option<Arc<Child>>);

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            child.kill();
            child.bury();
            child.kill_daemons();
        }
    }
}

/// Writes what the child is told, until it is dead.
async fn write_requests(
    mut to: ChildStdin,
    mut requests: mpsc::UnboundedReceiver<ControlRequest>,
    child: Arc<Child>,
) {
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(request) = request else { return };
                if control::send(&mut to, &request).await.is_err() {
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

/// Messages that only an operator cares for.
pub(crate) fn note(message: &ControlResponse) {
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
            tracing::warn!(target: "model", count, interval_millis, "lines were printed faster than they could be taken");
        }
        ControlResponse::Failed { slot, error } => {
            tracing::warn!(target: "child", slot, "slot broke: {error}")
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
