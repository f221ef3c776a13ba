//! What is remembered of each child for whoever looks after the server.

use jiff::Timestamp;
use tidegate_core::pool_status::{ProcessState, ProcessStatus};

use crate::state::Worker;

/// The longest part of a reason that is shown: the end, where a traceback says what happened.
const SHOWN_REASON: usize = 2000;

/// One child, and those that were in its place before.
pub(crate) struct Notes {
    pid: Option<u32>,
    since: Timestamp,
    slots: usize,
    /// Processes that were started in this place.
    started: u64,
    last_end: Option<String>,
}

impl Notes {
    pub(crate) fn new() -> Self {
        Self {
            pid: None,
            since: Timestamp::now(),
            slots: 0,
            started: 0,
            last_end: None,
        }
    }

    /// A process was started.
    pub(crate) fn begun(&mut self, pid: u32) {
        self.pid = Some(pid);
        self.started += 1;
        self.since = Timestamp::now();
    }

    /// It takes jobs.
    pub(crate) fn ready(&mut self, slots: usize) {
        self.slots = slots;
        self.since = Timestamp::now();
    }

    /// It is gone, or will not be tried again.
    pub(crate) fn ended(&mut self, reason: &str) {
        // Said twice of one death: when it is noticed, and when it is known what follows.
        if self.pid.take().is_some() || self.slots > 0 {
            self.since = Timestamp::now();
        }
        self.slots = 0;
        if !reason.is_empty() {
            self.last_end = Some(tail(reason).to_owned());
        }
    }

    /// As others see it; `idle` has the process of each free slot.
    pub(crate) fn member(&self, number: usize, worker: &Worker, idle: &[u32]) -> ProcessStatus {
        let state = match worker {
            Worker::Starting => ProcessState::Starting,
            Worker::Ready(_) => ProcessState::Ready,
            Worker::SetupFailed => ProcessState::SetupFailed,
            Worker::Defunct => ProcessState::Defunct,
        };
        let free = idle.iter().filter(|pid| Some(**pid) == self.pid).count();
        ProcessStatus {
            number,
            pid: self.pid,
            state,
            since: self.since,
            slots: self.slots,
            jobs: self.slots.saturating_sub(free),
            memory: None,
            restarts: self.started.saturating_sub(1),
            last_end: self.last_end.clone(),
        }
    }
}

fn tail(reason: &str) -> &str {
    let from = reason.len().saturating_sub(SHOWN_REASON);
    (from..)
        .find_map(|from| reason.get(from..))
        .unwrap_or_default()
}

/// What a process holds in memory, in bytes.
pub(crate) fn memory_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_remembers_who_was_in_it() {
        let mut notes = Notes::new();
        notes.begun(7);
        notes.ready(2);
        let seen = notes.member(0, &Worker::Starting, &[7, 8]);
        assert_eq!(
            (seen.pid, seen.slots, seen.jobs, seen.restarts),
            (Some(7), 2, 1, 0)
        );
        notes.ended("it fell");
        notes.ended("");
        notes.begun(9);
        let seen = notes.member(0, &Worker::Starting, &[]);
        assert_eq!(
            (seen.pid, seen.slots, seen.jobs, seen.restarts),
            (Some(9), 0, 0, 1)
        );
        assert_eq!(seen.last_end.as_deref(), Some("it fell"));
    }

    #[test]
    fn of_a_long_reason_the_end_is_shown() {
        let long = format!("{}é the end", "ü".repeat(5000));
        assert!(tail(&long).len() <= SHOWN_REASON && tail(&long).ends_with("the end"));
    }

    #[test]
    fn our_own_memory_is_known() {
        assert!(memory_of(std::process::id()).is_some_and(|bytes| bytes > 1024 * 1024));
        assert_eq!(memory_of(u32::MAX), None);
    }
}
