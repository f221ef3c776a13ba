//! Detects whether the kernel killed a process because memory ran out.
//!
//! A process killed by the OOM killer exits like any other process that received SIGKILL; only the
//! kernel's counter shows the difference.

/// The number of processes that the OOM killer has killed since the system started.
pub(crate) fn kill_count() -> u64 {
    // The file is absent on other systems; then no death is attributed to memory.
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    counters
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        .unwrap_or(0)
}
