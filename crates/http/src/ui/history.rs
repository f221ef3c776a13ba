//! The load of the last 15 minutes, in buckets of 5 seconds.
//!
//! The counters of the metrics only grow. A sample of them is taken every 5 seconds, from the start of the
//! server on; a bucket is the difference of two samples. Its percentiles are computed once: the samples of
//! the last minute are kept for the overview, the others are not.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::latency_histogram::LatencyCounts;

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

/// The 50th, 95th and 99th percentile, in seconds; `None` without jobs.
fn percentiles(latency: &LatencyCounts) -> [Option<f64>; 3] {
    [0.5, 0.95, 0.99].map(|part| latency.quantile(part).map(|time| time.as_secs_f64()))
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

/// The buckets of the last 15 minutes, and the samples of the last minute.
#[derive(Debug, Default)]
pub(super) struct LoadHistory {
    buckets: VecDeque<LoadBucket>,
    samples: VecDeque<LoadSample>,
}

/// What happened between two samples.
#[derive(Debug)]
struct LoadBucket {
    requests: u64,
    errors: u64,
    /// Levels at the end.
    waiting: usize,
    in_flight: usize,
    percentiles: [Option<f64>; 3],
}

impl LoadBucket {
    fn between(before: &LoadSample, sample: &LoadSample) -> Self {
        Self {
            requests: sample.requests.saturating_sub(before.requests),
            errors: sample.errors.saturating_sub(before.errors),
            waiting: sample.waiting,
            in_flight: sample.waiting + sample.running,
            percentiles: percentiles(&sample.latency.since(&before.latency)),
        }
    }
}

impl LoadHistory {
    /// Adds a sample. The first is the begin of the first bucket.
    pub(super) fn add(&mut self, sample: LoadSample) {
        if let Some(before) = self.samples.back() {
            self.buckets.push_back(LoadBucket::between(before, &sample));
        }
        self.samples.push_back(sample);
        if self.buckets.len() > MAX_BUCKETS {
            self.buckets.pop_front();
        }
        if self.samples.len() > OVERVIEW_BUCKETS + 1 {
            self.samples.pop_front();
        }
    }

    /// The load of the last minute until `now`.
    pub(super) fn overview(&self, now: &LoadSample) -> Overview {
        let before = self.samples.front().unwrap_or(now);
        let requests = now.requests.saturating_sub(before.requests);
        let errors = now.errors.saturating_sub(before.errors).min(requests);
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let [p50_s, p95_s, p99_s] = percentiles(&now.latency.since(&before.latency));
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
            end: self
                .samples
                .back()
                .map_or(0, |sample| sample.at.as_second()),
            ..HistoryDocument::default()
        };
        for bucket in &self.buckets {
            let [p50, p95, p99] = bucket.percentiles;
            document.requests.push(bucket.requests);
            document.errors.push(bucket.errors);
            document.waiting.push(bucket.waiting);
            document.in_flight.push(bucket.in_flight);
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
    use tidegate_core::latency_histogram::LatencyHistogram;

    use super::*;

    /// A sample after jobs that took so long, in seconds.
    fn sample(second: i64, requests: u64, times: &[f64]) -> LoadSample {
        let histogram = LatencyHistogram::default();
        for time in times {
            histogram.observe(Duration::from_secs_f64(*time));
        }
        let mut latency = LatencyCounts::default();
        latency.add(&histogram);
        LoadSample {
            at: Timestamp::from_second(second).unwrap(),
            requests,
            errors: requests / 10,
            latency,
            waiting: 2,
            running: 1,
        }
    }

    fn is_about(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found / expected - 1.0).abs() < 0.05)
    }

    #[test]
    fn a_bucket_is_the_difference_of_two_samples() {
        let mut history = LoadHistory::default();
        history.add(sample(100, 10, &[9.0]));
        history.add(sample(105, 30, &[9.0, 0.5, 0.5, 0.6]));
        history.add(sample(110, 30, &[9.0, 0.5, 0.5, 0.6]));
        let document = history.document();
        assert_eq!((document.step_s, document.end), (5, 110));
        assert_eq!(document.requests, [20, 0]);
        assert_eq!(document.errors, [2, 0]);
        assert_eq!(document.in_flight, [3, 3]);
        assert!(is_about(document.p50[0], 0.5), "{document:?}");
        assert!(is_about(document.p99[0], 0.6), "{document:?}");
        assert_eq!(document.p50[1], None);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut history = LoadHistory::default();
        for n in 0..500 {
            history.add(sample(n * 5, n.unsigned_abs(), &[]));
        }
        assert_eq!(history.document().requests.len(), MAX_BUCKETS);
        assert_eq!(history.samples.len(), OVERVIEW_BUCKETS + 1);
    }

    #[test]
    fn the_overview_is_over_the_last_minute() {
        let mut history = LoadHistory::default();
        for n in 0..100 {
            history.add(sample(n * 5, 10 * n.unsigned_abs(), &[30.0]));
        }
        let overview = history.overview(&sample(495, 1110, &[30.0, 0.25]));
        // A minute ago, at 435 s, there were 870 requests.
        assert!((overview.requests_per_s - 4.0).abs() < 1e-9, "{overview:?}");
        assert!((overview.error_rate - 0.1).abs() < 1e-9, "{overview:?}");
        assert_eq!((overview.in_flight, overview.waiting), (3, 2));
        assert!(is_about(overview.p99_s, 0.25), "{overview:?}");
        let empty = LoadHistory::default().overview(&sample(0, 5, &[1.0]));
        assert_eq!((empty.requests_per_s, empty.p50_s), (0.0, None));
    }

    #[test]
    fn a_removed_model_does_not_count_backwards() {
        let mut history = LoadHistory::default();
        history.add(sample(0, 100, &[1.0, 1.0]));
        history.add(sample(5, 20, &[1.0]));
        assert_eq!(history.document().requests, [0]);
        assert_eq!(history.document().p50, [None]);
    }
}
