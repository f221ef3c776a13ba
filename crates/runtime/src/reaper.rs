//! Kills and reaps the processes that children leave behind: daemons that outlive their child.
//!
//! There are two ways to find such a process. Every child has a tag in its environment, which its
//! descendants inherit whatever they do to their parents, groups and sessions. And the server is a
//! subreaper: it becomes the parent of every descendant whose own parent has exited. A daemon that
//! cleared its environment is found there.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions};

/// The environment variable that holds the tag.
const NAME: &str = "TIDEGATE_CHILD";

/// The tag in the environment of one child and of its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvTag(String);

impl EnvTag {
    /// A tag that no other child on this machine has.
    pub(crate) fn new(number: u64) -> Self {
        Self(format!("{}-{number}", std::process::id()))
    }

    /// Name and value of the variable for the environment of the child.
    pub(crate) fn variable(&self) -> (OsString, OsString) {
        (NAME.into(), self.0.clone().into())
    }

    fn is_on(&self, pid: i32) -> bool {
        let tag = format!("{NAME}={}", self.0).into_bytes();
        // Processes of other users cannot be read; they are not descendants of a child.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == tag)
    }
}

/// Knows the living children of this process and kills what dead ones leave behind.
#[derive(Default)]
pub(crate) struct Reaper {
    /// The living children, by process id.
    children: Mutex<HashMap<i32, EnvTag>>,
}

impl Reaper {
    /// The one reaper of this process, for all models: two reapers would take each other's children
    /// for orphans and kill them. Its first use makes the server a subreaper.
    pub(crate) fn global() -> Arc<Self> {
        static REAPER: OnceLock<Arc<Reaper>> = OnceLock::new();
        Arc::clone(REAPER.get_or_init(|| Arc::new(Self::new())))
    }

    fn new() -> Self {
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::debug!(%error, "failed to become a subreaper; daemons that clear their environment are not killed");
        }
        Self::default()
    }

    fn children(&self) -> MutexGuard<'_, HashMap<i32, EnvTag>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child and registers it. The lock is held meanwhile: a child that is not registered
    /// yet would look like an orphan.
    pub(crate) fn spawn_registered<T, E>(
        &self,
        tag: &EnvTag,
        spawn: impl FnOnce() -> Result<(T, u32), E>,
    ) -> Result<T, E> {
        let mut children = self.children();
        let (child, pid) = spawn()?;
        children.insert(pid.cast_signed(), tag.clone());
        Ok(child)
    }

    /// Forgets a child that has exited and left no processes behind.
    pub(crate) fn unregister(&self, pid: u32) {
        self.children().remove(&pid.cast_signed());
    }

    /// Kills the processes that a dead child left behind; returns their number. Orphans without a
    /// tag are attributed to this child only if no other child lives.
    pub(crate) fn kill_descendants(&self, pid: u32, tag: &EnvTag) -> usize {
        let mut children = self.children();
        children.remove(&pid.cast_signed());
        let is_only_child = children.is_empty();
        let is_descendant = |process: &ProcessInfo| {
            let is_orphan = process.parent == std::process::id().cast_signed()
                && !children.contains_key(&process.pid);
            tag.is_on(process.pid) || (is_orphan && is_only_child)
        };
        processes()
            .into_iter()
            .filter(is_descendant)
            .filter(|process| process.kill())
            .count()
    }

    /// Reaps adopted processes that have exited.
    pub(crate) fn reap_zombies(&self) {
        let children = self.children();
        let our_pid = std::process::id().cast_signed();
        for process in processes() {
            if process.parent == our_pid
                && process.state == 'Z'
                && !children.contains_key(&process.pid)
            {
                process.reap();
            }
        }
    }
}

/// A process as `/proc` shows it.
struct ProcessInfo {
    pid: i32,
    parent: i32,
    state: char,
}

impl ProcessInfo {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name before these fields is in parentheses and may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Kills and reaps the process; returns whether it was alive.
    fn kill(&self) -> bool {
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
            // A process that is still dying is reaped the next time.
            rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok();
        }
    }
}

fn processes() -> Vec<ProcessInfo> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(ProcessInfo::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_the_tag_are_killed() {
        let (mine, other) = (EnvTag::new(u64::MAX), EnvTag::new(u64::MAX - 1));
        let reaper = Reaper::default();
        let sleep = |tag: &EnvTag| {
            let (name, value) = tag.variable();
            let spawn = || {
                std::process::Command::new("sleep")
                    .arg("60")
                    .env(name, value)
                    .spawn()
                    .map(|child| (child.id(), child))
            };
            reaper
                .spawn_registered(tag, || spawn().map(|(pid, child)| (child, pid)))
                .unwrap()
        };
        let (mut killed, mut unharmed) = (sleep(&mine), sleep(&other));
        // The process id is that of no child; the tag alone decides.
        assert_eq!(reaper.kill_descendants(u32::MAX >> 1, &mine), 1);
        assert!(killed.wait().is_ok_and(|status| !status.success()) || killed.try_wait().is_err());
        assert!(unharmed.try_wait().unwrap().is_none());
        unharmed.kill().unwrap();
        unharmed.wait().unwrap();
    }
}
