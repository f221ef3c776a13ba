//! Facts about each child process, for the status reports to the operator.

use jiff::Timestamp;
use tidegate_core::gpu::GpuId;
use tidegate_core::pool_status::{ProcessState, ProcessStatus};

/// The longest part of a reason that is reported: its end, where a traceback has the exception.
const MAX_REASON: usize = 2000;

/// Facts about one child and about its predecessors with the same number.
pub(crate) struct ChildStats {
    pid: Option<u32>,
    gpus: Vec<GpuId>,
    /// When the present state began.
    since: Timestamp,
    slots: usize,
    /// Whether the next process replaces one, instead of being an additional one.
    replaces: bool,
    restarts: u64,
    last_end: Option<String>,
}

impl ChildStats {
    pub(crate) fn new() -> Self {
        Self {
            pid: None,
            gpus: Vec::new(),
            since: Timestamp::now(),
            slots: 0,
            replaces: false,
            restarts: 0,
            last_end: None,
        }
    }

    /// When the present state began.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Records the GPUs of the child and of those that replace it.
    pub(crate) fn assigned(&mut self, gpus: &[GpuId]) {
        self.gpus = gpus.to_vec();
    }

    /// The GPUs of the child, if it was given some.
    pub(crate) fn gpus(&self) -> Option<Vec<GpuId>> {
        (!self.gpus.is_empty()).then(|| self.gpus.clone())
    }

    /// Whether the child was given one of these GPUs.
    pub(crate) fn uses_gpus(&self, gpus: &[GpuId]) -> bool {
        self.gpus.iter().any(|gpu| gpus.contains(gpu))
    }

    /// Records that a process was started.
    pub(crate) fn started(&mut self, pid: u32) {
        self.pid = Some(pid);
        self.restarts += u64::from(self.replaces);
        self.replaces = true;
        self.since = Timestamp::now();
    }

    /// Records that the process is ready for jobs.
    pub(crate) fn ready(&mut self, slots: usize) {
        self.slots = slots;
        self.since = Timestamp::now();
    }

    /// Records that the process is gone or will not be started again.
    pub(crate) fn ended(&mut self, reason: &str) {
        // Called twice for one death: when it is noticed, and when the supervisor has decided
        // whether to respawn.
        if self.pid.take().is_some() || self.slots > 0 {
            self.since = Timestamp::now();
        }
        self.slots = 0;
        if !reason.is_empty() {
            self.last_end = Some(tail(reason).to_owned());
        }
    }

    /// Records that the process has ended because the load no longer needs it.
    pub(crate) fn scaled_down(&mut self) {
        self.ended("");
        self.gpus.clear();
        self.replaces = false;
    }

    /// How many times a process with this number was replaced.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The number of running jobs; `idle` has the process id of each free slot.
    pub(crate) fn jobs(&self, idle: &[u32]) -> usize {
        let free = idle.iter().filter(|pid| Some(**pid) == self.pid).count();
        self.slots.saturating_sub(free)
    }

    /// The status of child `number`; `idle` has the process id of each free slot.
    pub(crate) fn status(&self, number: usize, state: ProcessState, idle: &[u32]) -> ProcessStatus {
        ProcessStatus {
            number,
            pid: self.pid,
            state,
            since: self.since,
            slots: self.slots,
            jobs: self.jobs(idle),
            memory: None,
            restarts: self.restarts,
            gpus: self.gpus.clone(),
            last_end: self.last_end.clone(),
        }
    }
}

fn tail(reason: &str) -> &str {
    let from = reason.len().saturating_sub(MAX_REASON);
    (from..)
        .find_map(|from| reason.get(from..))
        .unwrap_or_default()
}

/// The resident memory of a process, in bytes.
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
    fn stats_include_the_predecessors_of_a_child() {
        let mut stats = ChildStats::new();
        stats.started(7);
        stats.ready(2);
        let status = stats.status(0, ProcessState::Starting, &[7, 8]);
        assert_eq!(
            (status.pid, status.slots, status.jobs, status.restarts),
            (Some(7), 2, 1, 0)
        );
        stats.ended("it fell");
        stats.ended("");
        stats.started(9);
        let status = stats.status(0, ProcessState::Starting, &[]);
        assert_eq!(
            (status.pid, status.slots, status.jobs, status.restarts),
            (Some(9), 0, 0, 1)
        );
        assert_eq!(status.last_end.as_deref(), Some("it fell"));
    }

    #[test]
    fn an_additional_process_is_not_a_restart() {
        let mut stats = ChildStats::new();
        stats.started(7);
        stats.scaled_down();
        stats.started(8);
        assert_eq!(stats.restarts(), 0);
        stats.ended("it fell");
        stats.started(9);
        assert_eq!(stats.restarts(), 1);
    }

    #[test]
    fn of_a_long_reason_the_end_is_reported() {
        let long = format!("{}é the end", "ü".repeat(5000));
        assert!(tail(&long).len() <= MAX_REASON && tail(&long).ends_with("the end"));
    }

    #[test]
    fn the_memory_of_this_process_is_readable() {
        assert!(memory_of(std::process::id()).is_some_and(|bytes| bytes > 1024 * 1024));
        assert_eq!(memory_of(u32::MAX), None);
    }
}
