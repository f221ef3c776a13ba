//! What children have started and left behind: daemons that outlive them.
//!
//! Two things lead to such a process. Every child has a mark in its environment, which its descendants
//! inherit whatever they do to their parents, groups and sessions. And the server takes in every process
//! of its descendants whose own parent is gone: one that has thrown its environment away is found there.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions};

/// The variable that holds the mark.
const NAME: &str = "TIDEGATE_CHILD";

/// The mark of one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// A mark that no other child on this machine has.
    pub(crate) fn new(number: u64) -> Self {
        Self(format!("{}-{number}", std::process::id()))
    }

    /// The variable for the child's environment.
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        (NAME.into(), self.0.clone().into())
    }

    fn is_on(&self, pid: i32) -> bool {
        let wanted = format!("{NAME}={}", self.0).into_bytes();
        // Processes of others cannot be read, and are not ours.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted)
    }
}

/// The children of this process that live, by their numbers.
#[derive(Default)]
pub(crate) struct Family {
    living: Mutex<HashMap<i32, Mark>>,
}

impl Family {
    /// The one family of this process, whatever number of models it serves: to two of them, each other's
    /// children would be strangers. From its first use on the server takes in what its descendants leave
    /// behind.
    pub(crate) fn of_process() -> Arc<Self> {
        static FAMILY: OnceLock<Arc<Family>> = OnceLock::new();
        Arc::clone(FAMILY.get_or_init(|| Arc::new(Self::new())))
    }

    fn new() -> Self {
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::debug!(%error, "daemons without an environment cannot be found");
        }
        Self::default()
    }

    fn living(&self) -> MutexGuard<'_, HashMap<i32, Mark>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child. Until it is known here nobody looks for strangers, who it would seem to be.
    pub(crate) fn add<T, E>(
        &self,
        mark: &Mark,
        start: impl FnOnce() -> Result<(T, u32), E>,
    ) -> Result<T, E> {
        let mut living = self.living();
        let (child, pid) = start()?;
        living.insert(pid.cast_signed(), mark.clone());
        Ok(child)
    }

    /// Lets a child go that was waited for and leaves nothing behind.
    pub(crate) fn remove(&self, pid: u32) {
        self.living().remove(&pid.cast_signed());
    }

    /// Kills what a dead child has left. Those without a mark are its own if no other child lives.
    pub(crate) fn bury(&self, pid: u32, mark: &Mark) -> usize {
        let mut living = self.living();
        living.remove(&pid.cast_signed());
        let alone = living.is_empty();
        let gone = |process: &Process| {
            let adopted = process.parent == std::process::id().cast_signed()
                && !living.contains_key(&process.pid);
            mark.is_on(process.pid) || (adopted && alone)
        };
        processes()
            .into_iter()
            .filter(gone)
            .filter(|process| process.end())
            .count()
    }

    /// Lets go of taken-in processes that have ended.
    pub(crate) fn tidy(&self) {
        let living = self.living();
        let us = std::process::id().cast_signed();
        for process in processes() {
            if process.parent == us && process.state == 'Z' && !living.contains_key(&process.pid) {
                process.reap();
            }
        }
    }
}

struct Process {
    pid: i32,
    parent: i32,
    state: char,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it is in brackets and may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Kills it; says whether it was alive.
    fn end(&self) -> bool {
        let killed = self.state != 'Z'
            && Pid::from_raw(self.pid)
                .is_some_and(|pid| rustix::process::kill_process(pid, Signal::KILL).is_ok());
        self.reap();
        killed
    }

    fn reap(&self) {
        if self.parent == std::process::id().cast_signed()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            // One that is still dying is let go of the next time.
            rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok();
        }
    }
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(Process::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_with_the_mark_go() {
        let (mine, other) = (Mark::new(u64::MAX), Mark::new(u64::MAX - 1));
        let family = Family::default();
        let sleep = |mark: &Mark| {
            let (name, value) = mark.variable();
            let start = || {
                std::process::Command::new("sleep")
                    .arg("60")
                    .env(name, value)
                    .spawn()
                    .map(|child| (child.id(), child))
            };
            family
                .add(mark, || start().map(|(pid, child)| (child, pid)))
                .unwrap()
        };
        let (mut gone, mut stays) = (sleep(&mine), sleep(&other));
        // Somebody else is buried; what has this mark goes.
        assert_eq!(family.bury(u32::MAX >> 1, &mine), 1);
        assert!(gone.wait().is_ok_and(|status| !status.success()) || gone.try_wait().is_err());
        assert!(stays.try_wait().unwrap().is_none());
        stays.kill().unwrap();
        stays.wait().unwrap();
    }
}
