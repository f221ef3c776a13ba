//! Starting the process: its channels, its environment, its place to wait for slots.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::net::UnixListener;
use tokio::process::{ChildStdin, ChildStdout, Command};

use rustix::process::{Pid, Resource, Rlimit};

use crate::launch::{Launch, Limits};
use crate::leftovers::Mark;
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
    Listen { path: PathBuf, source: std::io::Error },
    #[error("could not start `{python}`; give the interpreter with --python")]
    Start { python: PathBuf, source: std::io::Error },
    #[error("could not limit the child's {what}")]
    Limit { what: &'static str, source: std::io::Error },
}

impl SpawnError {
    /// Whether the machine may have room for it a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        use rustix::io::Errno;
        let (Self::Listen { source, .. } | Self::Start { source, .. } | Self::Limit { source, .. }) = self;
        let passing = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC];
        passing.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }
}

pub(crate) fn spawn(launch: &Launch, scratch: &Scratch) -> Result<Spawned, SpawnError> {
    let socket = scratch.fresh();
    let deaf = |source| SpawnError::Listen { path: socket.clone(), source };
    let slots = UnixListener::bind(&socket).map_err(deaf)?;
    scratch.give(&socket).map_err(deaf)?;
    let failed = |source| SpawnError::Start { python: launch.python.clone(), source };
    let mark = Mark::new(scratch.number());
    let mut process = command(launch, scratch, &mark).spawn().map_err(failed)?;
    let pid = process.id().expect("it has not been waited for");
    // Before it is told what to run, so before any of the model's code.
    limit(pid, launch.limits)?;
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

fn limit(pid: u32, limits: Limits) -> Result<(), SpawnError> {
    let wanted = [("memory", Resource::Data, limits.memory), ("processes", Resource::Nproc, limits.processes)];
    for (what, resource, most) in wanted {
        let Some(most) = most else { continue };
        let both = Rlimit { current: Some(most), maximum: Some(most) };
        let failed = |error: rustix::io::Errno| SpawnError::Limit { what, source: error.into() };
        rustix::process::prlimit(Pid::from_raw(pid as i32), resource, both).map_err(failed)?;
    }
    Ok(())
}

fn command(launch: &Launch, scratch: &Scratch, mark: &Mark) -> Command {
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
        command.gid(user.gid).uid(user.uid).env("HOME", user.home.as_deref().unwrap_or("/".as_ref()));
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
