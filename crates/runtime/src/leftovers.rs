//! What a child has started outside of its process group: daemons that outlive it.
//!
//! Every child gets a mark in its environment, which its descendants inherit whatever they do to their
//! parents, groups and sessions. When the child is dead, whoever still carries its mark goes too.

use std::ffi::OsString;

use rustix::process::{Pid, Signal};

/// The variable that holds the mark.
const NAME: &str = "TIDEGATE_CHILD";

/// The mark of one child.
#[derive(Debug, Clone)]
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

    /// Kills every process that carries the mark. Says how many there were.
    pub(crate) fn kill_all(&self) -> usize {
        let wanted = format!("{NAME}={}", self.0).into_bytes();
        let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
        let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let marked = numbers.filter(|pid| {
            // Processes of others cannot be read, and are not ours.
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        });
        let pids: Vec<_> = marked.filter_map(Pid::from_raw).collect();
        pids.iter().filter(|pid| rustix::process::kill_process(**pid, Signal::KILL).is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_with_the_mark_go() {
        let (mine, other) = (Mark::new(u64::MAX), Mark::new(u64::MAX - 1));
        let sleep = |mark: &Mark| {
            let (name, value) = mark.variable();
            std::process::Command::new("sleep").arg("60").env(name, value).spawn().unwrap()
        };
        let (mut gone, mut stays) = (sleep(&mine), sleep(&other));
        assert_eq!(mine.kill_all(), 1);
        assert!(!gone.wait().unwrap().success());
        assert!(stays.try_wait().unwrap().is_none());
        stays.kill().unwrap();
        stays.wait().unwrap();
    }
}
