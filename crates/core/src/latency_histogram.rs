//! Counts durations so that percentiles of them are exact to a few percent, from microseconds to hours.
//!
//! The buckets are log-linear, as in HdrHistogram: each power of two is divided into 16 equal parts. So the
//! number of buckets is fixed, and the middle of a bucket differs from each of its values by at most 3.2 %. The
//! histograms of the metrics have few buckets instead, because each is a line that Prometheus stores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of bits of a value that are exact, after the first.
const PART_BITS: u32 = 4;
/// How many parts a power of two has.
const PARTS: u64 = 1 << PART_BITS;
/// The longest duration that is counted exactly: 2^36 µs, 19 hours. Longer ones count as this.
const MAX_BITS: u32 = 36;
/// The number of buckets.
const BUCKETS: usize = ((MAX_BITS - PART_BITS + 1) << PART_BITS) as usize;

/// Counts durations; any number of threads may add some.
#[derive(Debug)]
pub struct LatencyHistogram(Box<[AtomicU64; BUCKETS]>);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; BUCKETS]))
    }
}

impl LatencyHistogram {
    /// Adds a duration.
    pub fn observe(&self, duration: Duration) {
        self.0[index_of(duration)].fetch_add(1, Ordering::Relaxed);
    }
}

/// The counts of one or several histograms at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyCounts(Box<[u64; BUCKETS]>);

impl Default for LatencyCounts {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl LatencyCounts {
    /// Adds the counts of a histogram.
    pub fn add(&mut self, histogram: &LatencyHistogram) {
        for (sum, count) in self.0.iter_mut().zip(histogram.0.iter()) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// The durations that were added after an earlier reading. Counts that became smaller, because a histogram
    /// is gone, are zero.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.clone();
        for (count, before) in counts.0.iter_mut().zip(earlier.0.iter()) {
            *count = count.saturating_sub(*before);
        }
        counts
    }

    /// The duration that this part of the durations has at most; `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        let rank = ((part * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        let index = self.0.iter().position(|count| {
            below += count;
            below >= rank
        });
        index.map(middle_of)
    }
}

/// The bucket of a duration.
fn index_of(duration: Duration) -> usize {
    let longest = (1 << MAX_BITS) - 1;
    let micros = u64::try_from(duration.as_micros()).map_or(longest, |micros| micros.min(longest));
    if micros < PARTS {
        return micros as usize;
    }
    let shift = micros.ilog2() - PART_BITS;
    // The first bit of the shifted value is that of the power of two, so it adds a whole range of parts.
    (u64::from(shift) * PARTS + (micros >> shift)) as usize
}

/// The middle of a bucket.
fn middle_of(index: usize) -> Duration {
    let index = index as u64;
    let shift = (index / PARTS).saturating_sub(1);
    let lower = (index - shift * PARTS) << shift;
    Duration::from_nanos(lower * 1000 + (1 << shift) * 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(durations: impl IntoIterator<Item = Duration>) -> LatencyCounts {
        let histogram = LatencyHistogram::default();
        durations.into_iter().for_each(|one| histogram.observe(one));
        let mut counts = LatencyCounts::default();
        counts.add(&histogram);
        counts
    }

    #[test]
    fn every_duration_is_exact_to_a_few_percent() {
        let mut micros = 20.0_f64;
        while micros < 6e10 {
            let exact = Duration::from_nanos((micros * 1000.0) as u64);
            let found = counts([exact]).quantile(0.99).unwrap();
            let error = (found.as_secs_f64() / exact.as_secs_f64() - 1.0).abs();
            assert!(error <= 0.035, "{exact:?} is {found:?}");
            micros *= 1.013;
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        let mut previous = None;
        for micros in 0..100_000 {
            let index = index_of(Duration::from_micros(micros));
            let step = previous.map_or(0, |previous| index - previous);
            assert!(step <= 1, "{micros}");
            previous = Some(index);
        }
        assert_eq!(index_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_ranks() {
        assert_eq!(counts([]).quantile(0.5), None);
        let spread = counts((1..=100).map(|n| Duration::from_millis(n * 10)));
        for (part, expected_ms) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = spread.quantile(part).unwrap().as_secs_f64() * 1000.0;
            let error: f64 = found / expected_ms - 1.0;
            assert!(error.abs() < 0.05, "{part}: {found}");
        }
        let same = counts(std::iter::repeat_n(Duration::from_millis(500), 50));
        let p95 = same.quantile(0.95).unwrap().as_secs_f64();
        assert!((p95 - 0.5).abs() < 0.025, "{p95}");
    }

    #[test]
    fn a_difference_has_the_later_durations_only() {
        let (early, late) = (Duration::from_millis(1), Duration::from_secs(1));
        let both = counts([early, late]);
        assert_eq!(both.since(&counts([early])), counts([late]));
        assert_eq!(counts([early]).since(&both), counts([]), "a removed model");
    }
}
