//! A program that the server runs for itself, such as an installer of packages.
//!
//! The [reaper](crate::reaper) would take it for a process that a child has left behind: it would kill it, or
//! take its exit status. So it is registered from its start until it has been waited for.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The process ids of the tools that run.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The process ids of the tools that run. Lock the children of the reaper first.
pub(crate) fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running program of the server. One that is dropped before it has exited is an orphan from then on.
#[derive(Debug)]
pub struct ToolProcess {
    process: Child,
    _registration: Registration,
}

/// A process id among those that run.
#[derive(Debug)]
struct Registration(i32);

impl Drop for Registration {
    fn drop(&mut self) {
        running().remove(&self.0);
    }
}

impl ToolProcess {
    /// Starts a program.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        // The lock is held meanwhile: before it is registered, the process would look like an orphan.
        let mut running = running();
        let process = command.spawn()?;
        let pid = process.id().cast_signed();
        running.insert(pid);
        Ok(Self {
            process,
            _registration: Registration(pid),
        })
    }

    /// Runs a program and returns its output and its exit status.
    pub fn output(command: &mut Command) -> io::Result<Output> {
        let Self {
            process,
            _registration,
        } = Self::spawn(command.stdout(Stdio::piped()))?;
        process.wait_with_output()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the program.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Waits until the program has exited.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }
}
