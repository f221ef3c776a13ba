//! Starting the process: its channels, its environment, its place to wait for slots.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::net::UnixListener;
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::launch::LaunchConfig;
use crate::leftovers::{Family, Mark};
use crate::scratch::Scratch;

/// A process that has been started and told nothing yet.
pub(crate) struct Spawned {
    pub(crate) process: tokio::process::Child,
    pub(crate) pid: u32,
    pub(crate) control_in: ChildStdin,
    pub(crate) control_out: ChildStdout,
    pub(crate) slots: UnixListener,
    pub(crate) socket: PathBuf,
    pub(crate) mark: Mark,
}

/// The process did not even start.
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
    /// Whether the machine may have room for it a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        let (Self::Listen { source, .. }
        | Self::Start { source, .. }
        | Self::StartAs { source, .. }) = self;
        is_shortage(source)
    }
}

/// Whether something has run out that may be there again a moment later.
pub(crate) fn is_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::NOSPC,
    ];
    passing
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(crate) fn spawn(
    launch: &LaunchConfig,
    scratch: &Scratch,
    family: &Family,
) -> Result<Spawned, SpawnError> {
    let socket = scratch.unique_path();
    let deaf = |source| SpawnError::Listen {
        path: socket.clone(),
        source,
    };
    let slots = UnixListener::bind(&socket).map_err(deaf)?;
    scratch.give(&socket).map_err(deaf)?;
    let failed = |source| match &launch.run_as {
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
    let mark = Mark::new(scratch.number());
    let start = || {
        let process = command(launch, scratch, &mark).spawn()?;
        let pid = process.id().expect("it has not been waited for");
        Ok(((process, pid), pid))
    };
    let (mut process, pid) = family.add(&mark, start).map_err(failed)?;
    Ok(Spawned {
        pid,
        mark,
        control_in: process.stdin.take().expect("stdin is piped"),
        control_out: process.stdout.take().expect("stdout is piped"),
        process,
        slots,
        socket,
    })
}

fn command(launch: &LaunchConfig, scratch: &Scratch, mark: &Mark) -> Command {
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
    let (name, value) = mark.variable();
    command.env(name, value);
    if let Some(user) = &launch.run_as {
        // std gives up the supplementary groups as well.
        command
            .gid(user.gid)
            .uid(user.uid)
            .env("HOME", user.home.as_deref().unwrap_or("/".as_ref()));
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
