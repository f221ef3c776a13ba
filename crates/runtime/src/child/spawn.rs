//! Starts the process of a child: its channels, its environment and the socket for its slots.

use std::path::PathBuf;
use std::process::Stdio;

use tidegate_core::gpu::{GpuId, visible_devices};
use tidegate_ipc::ProcessTag;
use tokio::net::UnixListener;
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::interpreter_path;
use crate::launch_config::LaunchConfig;
use crate::reaper::{self, Reaper};
use crate::scratch::Scratch;

/// A started process that has not received a message yet.
pub(crate) struct Spawned {
    pub(crate) process: tokio::process::Child,
    pub(crate) pid: u32,
    pub(crate) control_in: ChildStdin,
    pub(crate) control_out: ChildStdout,
    pub(crate) slots: UnixListener,
    pub(crate) socket: PathBuf,
    pub(crate) tag: ProcessTag,
}

/// The process could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("could not listen on `{path}` for the child's slots")]
    Listen {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("could not start `{python}`; give the interpreter with --python")]
    Start {
        python: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "could not start `{python}` as user {uid}; --run-as needs an interpreter that this user may read and run"
    )]
    StartAs {
        python: PathBuf,
        uid: u32,
        source: std::io::Error,
    },
}

impl SpawnError {
    /// Whether a later attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        let (Self::Listen { source, .. }
        | Self::Start { source, .. }
        | Self::StartAs { source, .. }) = self;
        is_resource_shortage(source)
    }
}

/// Whether the machine lacks a resource that may be available again soon.
pub(crate) fn is_resource_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let transient = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::NOSPC,
    ];
    transient
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(crate) fn spawn(
    launch: &LaunchConfig,
    scratch: &Scratch,
    reaper: &Reaper,
    gpus: Option<&[GpuId]>,
) -> Result<Spawned, SpawnError> {
    let socket = scratch.unique_path();
    let listen_failed = |source| SpawnError::Listen {
        path: socket.clone(),
        source,
    };
    let slots = UnixListener::bind(&socket).map_err(listen_failed)?;
    scratch.chown(&socket).map_err(listen_failed)?;
    let start_failed = |source| match &launch.run_as {
        Some(user) => SpawnError::StartAs {
            python: launch.python.clone(),
            uid: user.uid,
            source,
        },
        None => SpawnError::Start {
            python: launch.python.clone(),
            source,
        },
    };
    let tag = reaper::new_tag(scratch.next_number());
    let spawn = || {
        let process = command(launch, scratch, &tag, gpus).spawn()?;
        let pid = process.id().expect("it has not been waited for");
        Ok(((process, pid), pid))
    };
    let (mut process, pid) = reaper.spawn_registered(&tag, spawn).map_err(start_failed)?;
    Ok(Spawned {
        pid,
        tag,
        control_in: process.stdin.take().expect("stdin is piped"),
        control_out: process.stdout.take().expect("stdout is piped"),
        process,
        slots,
        socket,
    })
}

fn command(
    launch: &LaunchConfig,
    scratch: &Scratch,
    tag: &ProcessTag,
    gpus: Option<&[GpuId]>,
) -> Command {
    let mut command = Command::new(&launch.python);
    command
        .args(["-u", "-c", "from tidegate.child import main; main()"])
        // Not the model's folder: `-c` puts the working directory on the import path, and a `json.py`
        // there would break the child before it can report an error.
        .current_dir(scratch.path())
        .envs(launch.env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // A process group of its own: Ctrl-C in the terminal must reach only the server, which drains.
        .process_group(0)
        .kill_on_drop(true);
    for name in &launch.hidden_env {
        command.env_remove(name);
    }
    if let Some(gpus) = gpus {
        command.envs(visible_devices(gpus));
    }
    let (name, value) = reaper::tag_variable(tag);
    command.env(name, value);
    command.envs(interpreter_path::variables(launch, scratch));
    if let Some(user) = &launch.run_as {
        // Libraries cache what they download below the home folder, or in the folders that inherited
        // variables such as HF_HOME and TORCH_HOME name: all children have the same ones.
        let home = scratch.home().or(user.home.as_deref());
        // `uid` also drops the supplementary groups.
        command
            .gid(user.gid)
            .uid(user.uid)
            .env("HOME", home.unwrap_or("/".as_ref()));
    }
    if !launch.python_path.is_empty() {
        let inherited = launch
            .env
            .iter()
            .find(|(key, _)| key == "PYTHONPATH")
            .map(|(_, value)| PathBuf::from(value));
        let all = launch.python_path.iter().cloned().chain(inherited);
        if let Ok(joined) = std::env::join_paths(all) {
            command.env("PYTHONPATH", joined);
        }
    }
    command
}
