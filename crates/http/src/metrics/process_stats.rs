//! Memory, file descriptors and cpu_seconds time of this process, from `/proc`.

use std::fs;

/// Clock ticks per second: 100 on every supported Linux.
const TICKS: f64 = 100.0;

/// The statistics of this process; a value that cannot be read is absent.
#[derive(Debug, Default)]
pub(super) struct ServerProcessStats {
    pub(super) memory: Option<f64>,
    pub(super) descriptors: Option<f64>,
    pub(super) max_descriptors: Option<f64>,
    pub(super) cpu_seconds: Option<f64>,
}

impl ServerProcessStats {
    pub(super) fn read() -> Self {
        Self {
            memory: memory(),
            descriptors: descriptors(),
            max_descriptors: max_descriptors(),
            cpu_seconds: cpu_seconds(),
        }
    }
}

fn memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<f64>()
        .ok()
        .map(|kib| kib * 1024.0)
}

fn descriptors() -> Option<f64> {
    // Without the descriptor that reads the directory.
    Some(
        fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1) as f64,
    )
}

fn max_descriptors() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_statistics_are_read() {
        let process = ServerProcessStats::read();
        assert!(process.memory.is_some_and(|bytes| bytes > 1e6));
        assert!(process.descriptors.is_some_and(|count| count >= 3.0));
        assert!(process.max_descriptors > process.descriptors);
        assert!(
            process
                .cpu_seconds
                .is_some_and(|seconds| (0.0..1e6).contains(&seconds))
        );
    }
}
