//! The numbers of a run: how long jobs waited, and how often something was repeated.

use std::time::Duration;

use tidegate_core::Status;

/// The numbers of a run.
#[derive(Debug, Clone, Default)]
pub struct RunNumbers {
    /// Jobs that the store got.
    pub inserted: u64,
    /// Jobs that ended, by status.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// Jobs whose deadline passed before they started.
    pub aborted: u64,
    /// Leases that were granted.
    pub leases: u64,
    /// Leases that were given back.
    pub released: u64,
    /// Executions that started.
    pub executions: u64,
    /// Messages that receivers got.
    pub messages: u64,
    /// Directors that crashed.
    pub crashes: u64,
    /// Directors that were cut off.
    pub partitions: u64,
    /// Broken invariants.
    pub violations: u64,
    /// Waiting times of the account that has most jobs, in milliseconds.
    heavy_waits: Vec<u32>,
    /// Waiting times of the other accounts.
    light_waits: Vec<u32>,
}

/// Percentiles of waiting times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the jobs waited at most this long.
    pub half: Duration,
    /// 99 of 100 jobs waited at most this long.
    pub most: Duration,
    /// The longest time.
    pub longest: Duration,
}

impl RunNumbers {
    pub(super) fn waited(&mut self, is_heavy: bool, milliseconds: u64) {
        let waits = if is_heavy {
            &mut self.heavy_waits
        } else {
            &mut self.light_waits
        };
        waits.push(u32::try_from(milliseconds).unwrap_or(u32::MAX));
    }

    pub(super) fn ended(&mut self, status: Status) {
        match status {
            Status::Succeeded => self.succeeded += 1,
            Status::Failed => self.failed += 1,
            Status::Canceled => self.canceled += 1,
            Status::Aborted => self.aborted += 1,
            Status::Queued | Status::Starting | Status::Processing => {}
        }
    }

    /// The waiting times of all jobs that started.
    pub fn waits(&self) -> Percentiles {
        percentiles([&self.heavy_waits[..], &self.light_waits[..]].concat())
    }

    /// The waiting times of the account that has most jobs.
    pub fn heavy_waits(&self) -> Percentiles {
        percentiles(self.heavy_waits.clone())
    }

    /// The waiting times of the other accounts.
    pub fn light_waits(&self) -> Percentiles {
        percentiles(self.light_waits.clone())
    }
}

fn percentiles(mut waits: Vec<u32>) -> Percentiles {
    waits.sort_unstable();
    let at = |share: usize| {
        let index = (waits.len().saturating_sub(1)) * share / 100;
        Duration::from_millis(u64::from(waits.get(index).copied().unwrap_or_default()))
    };
    Percentiles {
        half: at(50),
        most: at(99),
        longest: at(100),
    }
}
