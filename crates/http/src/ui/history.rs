//! The load of the last 15 minutes, in buckets of 5 seconds.
//!
//! The counters and histograms of the metrics only grow. A sample of them is taken every 5 seconds, from the
//! start of the server on; a bucket is the difference of two samples. Nothing is counted for it when a job
//! runs.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::counters::HistogramSnapshot;

/// The time between two samples.
pub(super) const STEP: Duration = Duration::from_secs(5);
/// The number of buckets: 15 minutes.
const MAX_BUCKETS: usize = 180;
/// The overview is over this many buckets: a minute.
const OVERVIEW_BUCKETS: usize = 12;

/// The counters and levels of the server at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LoadSample {
    pub(super) at: Timestamp,
    /// Requests for jobs since the start, accepted or refused.
    pub(super) requests: u64,
    /// Requests since the start that failed, or were refused for a reason of the server.
    pub(super) errors: u64,
    /// How long jobs took.
    pub(super) latency: LatencyCounts,
    pub(super) waiting: usize,
    pub(super) running: usize,
}

/// The number of jobs by the time that they took: each bound in seconds with the number of jobs that took at
/// most as long, and more than the previous bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LatencyCounts(Vec<(f64, u64)>);

impl LatencyCounts {
    /// Adds the counts of a histogram with the same bounds.
    pub(super) fn add(&mut self, histogram: &HistogramSnapshot) {
        if self.0.is_empty() {
            self.0.clone_from(&histogram.buckets);
            return;
        }
        for ((_, sum), (_, count)) in self.0.iter_mut().zip(&histogram.buckets) {
            *sum += count;
        }
    }

    /// The jobs that ended since an earlier sample. A model may have been removed meanwhile, with its counts.
    fn since(&self, earlier: &Self) -> Self {
        let before = |index: usize| earlier.0.get(index).map_or(0, |(_, count)| *count);
        let counts = self.0.iter().enumerate();
        let counts = counts.map(|(i, (bound, count))| (*bound, count.saturating_sub(before(i))));
        Self(counts.collect())
    }

    /// The time that this part of the jobs took at most, in seconds; `None` without jobs. Linear between two
    /// bounds; above the last bound it is that bound.
    fn quantile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|(_, count)| count).sum();
        if total == 0 {
            return None;
        }
        let rank = part * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            let count = *count as f64;
            if *bound == f64::MAX {
                break;
            }
            if below + count >= rank && count > 0.0 {
                return Some(lower + (bound - lower) * (rank - below) / count);
            }
            (below, lower) = (below + count, *bound);
        }
        Some(lower)
    }

    fn percentiles(&self) -> [Option<f64>; 3] {
        [0.5, 0.95, 0.99].map(|part| self.quantile(part))
    }
}

/// The load of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Overview {
    requests_per_s: f64,
    /// Jobs that wait or run.
    in_flight: usize,
    waiting: usize,
    running: usize,
    pub(super) oldest_wait_s: Option<f64>,
    /// The part of the requests that failed.
    error_rate: f64,
    p50_s: Option<f64>,
    p95_s: Option<f64>,
    p99_s: Option<f64>,
}

/// The load of the last 15 minutes, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct HistoryDocument {
    step_s: u64,
    /// When the last bucket ended, in seconds since 1970.
    end: i64,
    /// Requests in each bucket.
    requests: Vec<u64>,
    errors: Vec<u64>,
    /// Levels at the end of each bucket.
    waiting: Vec<usize>,
    in_flight: Vec<usize>,
    /// Seconds.
    p50: Vec<Option<f64>>,
    p95: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
}

/// The samples of the last 15 minutes.
#[derive(Debug, Default)]
pub(super) struct LoadHistory(VecDeque<LoadSample>);

impl LoadHistory {
    /// Adds a sample. The first is the begin of the first bucket.
    pub(super) fn add(&mut self, sample: LoadSample) {
        if self.0.len() > MAX_BUCKETS {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The load of the last minute until `now`.
    pub(super) fn overview(&self, now: &LoadSample) -> Overview {
        let first = self.0.len().saturating_sub(OVERVIEW_BUCKETS + 1);
        let before = self.0.get(first).unwrap_or(now);
        let requests = now.requests.saturating_sub(before.requests);
        let errors = now.errors.saturating_sub(before.errors).min(requests);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let [p50_s, p95_s, p99_s] = now.latency.since(&before.latency).percentiles();
        Overview {
            // A server that has just started has no rate yet.
            requests_per_s: ratio(requests as f64, seconds.max(1.0)),
            in_flight: now.waiting + now.running,
            waiting: now.waiting,
            running: now.running,
            oldest_wait_s: None,
            error_rate: ratio(errors as f64, requests as f64),
            p50_s,
            p95_s,
            p99_s,
        }
    }

    /// All buckets.
    pub(super) fn document(&self) -> HistoryDocument {
        let mut document = HistoryDocument {
            step_s: STEP.as_secs(),
            end: self.0.back().map_or(0, |sample| sample.at.as_second()),
            ..HistoryDocument::default()
        };
        for (before, sample) in self.0.iter().zip(self.0.iter().skip(1)) {
            let [p50, p95, p99] = sample.latency.since(&before.latency).percentiles();
            let requests = sample.requests.saturating_sub(before.requests);
            document.requests.push(requests);
            document
                .errors
                .push(sample.errors.saturating_sub(before.errors));
            document.waiting.push(sample.waiting);
            document.in_flight.push(sample.waiting + sample.running);
            document.p50.push(p50);
            document.p95.push(p95);
            document.p99.push(p99);
        }
        document
    }
}

/// A ratio with three decimal places; zero if there is nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole == 0.0 {
        return 0.0;
    }
    (part / whole * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(counts: [u64; 3]) -> LatencyCounts {
        let bounds = [0.1, 1.0, f64::MAX];
        LatencyCounts(bounds.into_iter().zip(counts).collect())
    }

    fn sample(second: i64, requests: u64, counts: [u64; 3]) -> LoadSample {
        LoadSample {
            at: Timestamp::from_second(second).unwrap(),
            requests,
            errors: requests / 10,
            latency: latency(counts),
            waiting: 2,
            running: 1,
        }
    }

    #[test]
    fn quantiles_are_linear_between_bounds() {
        assert_eq!(latency([0, 0, 0]).quantile(0.5), None);
        assert_eq!(latency([10, 0, 0]).quantile(0.5), Some(0.05));
        let spread = latency([50, 50, 0]).quantile(0.75).unwrap();
        assert!((spread - 0.55).abs() < 1e-9, "{spread}");
        assert_eq!(
            latency([0, 0, 4]).quantile(0.5),
            Some(1.0),
            "above all bounds"
        );
    }

    #[test]
    fn a_bucket_is_the_difference_of_two_samples() {
        let mut history = LoadHistory::default();
        history.add(sample(100, 10, [1, 0, 0]));
        history.add(sample(105, 30, [1, 10, 0]));
        history.add(sample(110, 30, [1, 10, 0]));
        let document = history.document();
        assert_eq!((document.step_s, document.end), (5, 110));
        assert_eq!(document.requests, [20, 0]);
        assert_eq!(document.errors, [2, 0]);
        assert_eq!(document.in_flight, [3, 3]);
        let p50 = document.p50[0].unwrap();
        assert!((p50 - 0.55).abs() < 1e-9, "{p50}");
        assert_eq!(document.p50[1], None);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = LoadHistory::default();
        for n in 0..500 {
            history.add(sample(n * 5, n.unsigned_abs(), [0, 0, 0]));
        }
        assert_eq!(history.document().requests.len(), MAX_BUCKETS);
    }

    #[test]
    fn the_overview_is_over_the_last_minute() {
        let mut history = LoadHistory::default();
        for n in 0..100 {
            history.add(sample(n * 5, 10 * n.unsigned_abs(), [0, 0, 0]));
        }
        let overview = history.overview(&sample(495, 1110, [0, 4, 0]));
        // A minute ago, at 435 s, there were 870 requests.
        assert!((overview.requests_per_s - 4.0).abs() < 1e-9, "{overview:?}");
        assert!((overview.error_rate - 0.1).abs() < 1e-9, "{overview:?}");
        assert_eq!((overview.in_flight, overview.waiting), (3, 2));
        assert!(overview.p50_s.is_some());
        let empty = LoadHistory::default().overview(&sample(0, 5, [1, 0, 0]));
        assert_eq!((empty.requests_per_s, empty.p50_s), (0.0, None));
    }

    #[test]
    fn a_removed_model_does_not_count_backwards() {
        let mut history = LoadHistory::default();
        history.add(sample(0, 100, [9, 0, 0]));
        history.add(sample(5, 20, [1, 0, 0]));
        assert_eq!(history.document().requests, [0]);
    }
}
