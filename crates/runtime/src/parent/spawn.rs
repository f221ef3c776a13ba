//! Starting the process: its channels, its environment, its place to wait for slots.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::net::UnixListener;
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::launch::Launch;
use crate::scratch::Scratch;

/// A process that has been started and told nothing yet.
pub(crate) struct Spawned {
    pub(crate) process: tokio::process::Child,
    pub(crate) pid: u32,
    pub(crate) control_in: ChildStdin,
    pub(crate) control_out: ChildStdout,
    pub(crate) slots: UnixListener,
    pub(crate) socket: PathBuf,
}

/// The process did not even start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    #[error("could not listen on `{path}` for the child's slots")]
    Listen { path: PathBuf, source: std::io::Error },
    #[error("could not start `{python}`; give the interpreter with --python")]
    Start { python: PathBuf, source: std::io::Error },
}

pub(crate) fn spawn(launch: &Launch, scratch: &Scratch) -> Result<Spawned, SpawnError> {
    let socket = scratch.fresh();
    let slots = UnixListener::bind(&socket).map_err(|source| SpawnError::Listen { path: socket.clone(), source })?;
    let failed = |source| SpawnError::Start { python: launch.python.clone(), source };
    let mut process = command(launch, scratch).spawn().map_err(failed)?;
    Ok(Spawned {
        pid: process.id().expect("it has not been waited for"),
        control_in: process.stdin.take().expect("stdin is piped"),
        control_out: process.stdout.take().expect("stdout is piped"),
        process,
        slots,
        socket,
    })
}

fn command(launch: &Launch, scratch: &Scratch) -> Command {
    let mut command = Command::new(&launch.python);
    command
        .args(["-u", "-c", "from tidegate.child import main; main()"])
        // Not the model's folder: `-c` puts the working directory on the import path, and a `json.py`
        // there would break the child before it can say so.
        .current_dir(scratch.path())
        .envs(launch.env.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // Its own group: a Ctrl-C in the terminal is for the server, which then drains.
        .process_group(0)
        .kill_on_drop(true);
    for name in &launch.hidden_env {
        command.env_remove(name);
    }
    if !launch.python_path.is_empty() {
        let inherited = launch.env.iter().find(|(key, _)| key == "PYTHONPATH").map(|(_, value)| PathBuf::from(value));
        let all = launch.python_path.iter().cloned().chain(inherited);
        if let Ok(joined) = std::env::join_paths(all) {
            command.env("PYTHONPATH", joined);
        }
    }
    command
}
