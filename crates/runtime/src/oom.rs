//! Whether the system has killed something because memory ran out.
//!
//! A process that is killed for memory ends like any other that got SIGKILL; only the kernel's counter
//! tells them apart.

/// How many processes the system has killed for memory since it started.
pub(crate) fn kills() -> u64 {
    // Absent on other systems: then nothing is ever blamed on memory.
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    counters
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        .unwrap_or(0)
}
