//! Kills and reaps the processes that children leave behind: daemons that outlive their child.
//!
//! There are two ways to find such a process. Every child has a [`ProcessTag`], which its descendants
//! inherit whatever they do to their parents, groups and sessions. And the server is a subreaper: it
//! becomes the parent of every descendant whose own parent has exited. A daemon that removed its tag is
//! found there.
//!
//! The server also runs programs for itself, such as an installer; a
//! [`ToolProcess`](tool_process::ToolProcess) is not an orphan.
//!
//! When the server itself is killed, each child kills its own descendants: `python/src/descendants.rs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions};
use tidegate_ipc::ProcessTag;

use crate::tool_process;

/// A tag that no other child on this machine has. `number` differs between the children of this server.
pub(crate) fn new_tag(number: u64) -> ProcessTag {
    // The time tells apart two servers that had the same process id.
    static STARTED: OnceLock<i128> = OnceLock::new();
    let started = STARTED.get_or_init(|| jiff::Timestamp::now().as_nanosecond());
    ProcessTag::new(format!("{}-{number}-{started:x}", std::process::id()))
}

/// Name and value of the variable for the environment of the child.
pub(crate) fn tag_variable(tag: &ProcessTag) -> (&'static str, &str) {
    (ProcessTag::VARIABLE, tag.text())
}

/// Whether a process has the tag. What cannot be read belongs to another user, or to no process.
fn has_tag(tag: &ProcessTag, pid: i32) -> bool {
    let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    tag.is_on(&read("environ"), &read("limits"))
}

/// Knows the living children of this process and kills what dead ones leave behind.
#[derive(Default)]
pub(crate) struct Reaper {
    /// The living children, by process id.
    children: Mutex<HashMap<i32, ProcessTag>>,
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
            tracing::debug!(%error, "failed to become a subreaper; daemons that remove their tag are not killed");
        }
        Self::default()
    }

    fn children(&self) -> MutexGuard<'_, HashMap<i32, ProcessTag>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child and registers it. The lock is held meanwhile: a child that is not registered
    /// yet would look like an orphan.
    pub(crate) fn spawn_registered<T, E>(
        &self,
        tag: &ProcessTag,
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

    /// Whether a process of this server is neither one of `children` nor one of `tools`.
    fn is_orphan(
        process: &ProcessInfo,
        children: &HashMap<i32, ProcessTag>,
        tools: &BTreeSet<i32>,
    ) -> bool {
        process.parent == std::process::id().cast_signed()
            && !children.contains_key(&process.pid)
            && !tools.contains(&process.pid)
    }

    /// Kills the processes that a dead child left behind; returns their number. Orphans without a
    /// tag are attributed to this child only if no other child lives.
    pub(crate) fn kill_descendants(&self, pid: u32, tag: &ProcessTag) -> usize {
        let mut children = self.children();
        children.remove(&pid.cast_signed());
        let (tools, is_only_child) = (tool_process::running(), children.is_empty());
        let is_descendant = |process: &ProcessInfo| {
            let is_orphan = Self::is_orphan(process, &children, &tools);
            has_tag(tag, process.pid) || (is_orphan && is_only_child)
        };
        processes()
            .into_iter()
            .filter(is_descendant)
            .filter(|process| process.kill())
            .count()
    }

    /// Reaps adopted processes that have exited.
    pub(crate) fn reap_zombies(&self) {
        let (children, tools) = (self.children(), tool_process::running());
        for process in processes() {
            if process.state == 'Z' && Self::is_orphan(&process, &children, &tools) {
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
    use crate::tool_process::ToolProcess;

    #[test]
    fn a_tool_of_the_server_is_not_an_orphan() {
        let command = || {
            let mut command = std::process::Command::new("sleep");
            command.arg("60");
            command
        };
        let is_orphan = |pid: u32| {
            let process = ProcessInfo::read(pid.cast_signed()).unwrap();
            Reaper::is_orphan(&process, &HashMap::new(), &tool_process::running())
        };
        let mut tool = ToolProcess::spawn(&mut command()).unwrap();
        let mut other = command().spawn().unwrap();
        assert!(!is_orphan(tool.id()) && is_orphan(other.id()));
        tool.kill().unwrap();
        other.kill().unwrap();
        // Only its owner takes the exit status of a tool.
        Reaper::default().reap_zombies();
        assert!(!tool.wait().unwrap().success());
        other.wait().ok();
    }

    #[test]
    fn only_processes_with_the_tag_are_killed() {
        let (mine, other) = (new_tag(u64::MAX), new_tag(u64::MAX - 1));
        let reaper = Reaper::default();
        let sleep = |tag: &ProcessTag| {
            let (name, value) = tag_variable(tag);
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
