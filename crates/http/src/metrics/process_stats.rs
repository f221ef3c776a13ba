//! What the system knows about this process.

use std::fs;

/// Processor time is counted in hundredths of a second on every Linux that we run on.
const TICKS: f64 = 100.0;

/// This process at one moment; what the system does not tell is absent.
#[derive(Debug, Default)]
pub(super) struct ProcessStats {
    pub(super) memory: Option<f64>,
    pub(super) descriptors: Option<f64>,
    pub(super) max_descriptors: Option<f64>,
    pub(super) processor: Option<f64>,
}

impl ProcessStats {
    pub(super) fn read() -> Self {
        Self {
            memory: memory(),
            descriptors: descriptors(),
            max_descriptors: max_descriptors(),
            processor: processor(),
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
    // The one that reads the folder is not counted.
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

fn processor() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_about_us() {
        let process = ProcessStats::read();
        assert!(process.memory.is_some_and(|bytes| bytes > 1e6));
        assert!(process.descriptors.is_some_and(|count| count >= 3.0));
        assert!(process.max_descriptors > process.descriptors);
        assert!(
            process
                .processor
                .is_some_and(|seconds| (0.0..1e6).contains(&seconds))
        );
    }
}
