//! The counters of the requests of one model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::counters::{Counter, Histogram};
use tidegate_core::latency_histogram::LatencyHistogram;

use super::record::RequestDetails;

/// Bounds for times of requests, in seconds.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// Bounds for the time that the router itself adds, in seconds.
const OVERHEAD: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25,
];

/// The requests of one model since the start.
pub(crate) struct RoutedModelMetrics {
    labels: Mutex<LabeledCounts>,
    /// From arrival to the last byte.
    pub(crate) duration: Histogram,
    /// The same, for percentiles.
    pub(crate) durations: LatencyHistogram,
    /// From arrival to the first byte of the body.
    pub(crate) first_byte: Histogram,
    /// The time in the queue.
    pub(crate) queue_time: Histogram,
    /// The time to the first byte without the queue and the backend.
    pub(crate) overhead: Histogram,
    /// Attempts after the first of each request.
    pub(crate) retries: Counter,
    /// Responses that were cut after the first byte.
    pub(crate) cuts: Counter,
    /// Tokens of prompts and texts.
    pub(crate) prompt_tokens: Counter,
    pub(crate) completion_tokens: Counter,
}

/// Counts by labels with values that are not known in advance.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabeledCounts {
    pub(crate) by_status: BTreeMap<u16, u64>,
    /// By the number of the error and the status.
    pub(crate) errors: BTreeMap<(u32, u16), u64>,
    /// By kind and endpoint.
    pub(crate) by_backend: BTreeMap<(&'static str, String), u64>,
    pub(crate) by_health: BTreeMap<&'static str, u64>,
    pub(crate) by_api: BTreeMap<&'static str, u64>,
}

impl Default for RoutedModelMetrics {
    fn default() -> Self {
        Self {
            labels: Mutex::default(),
            duration: Histogram::new(SECONDS),
            durations: LatencyHistogram::default(),
            first_byte: Histogram::new(SECONDS),
            queue_time: Histogram::new(SECONDS),
            overhead: Histogram::new(OVERHEAD),
            retries: Counter::default(),
            cuts: Counter::default(),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
        }
    }
}

impl RoutedModelMetrics {
    /// Counts a request that has ended.
    pub(super) fn count(&self, request: &RequestDetails) {
        let log = &request.log;
        let duration = request.arrived.elapsed();
        self.duration.observe(duration.as_secs_f64());
        self.durations.observe(duration);
        self.queue_time.observe(log.waited.as_secs_f64());
        if let (Some(first_byte), Some(backend)) = (request.first_byte, log.first_byte) {
            self.first_byte.observe(first_byte.as_secs_f64());
            let known = backend + log.waited;
            self.overhead
                .observe(first_byte.saturating_sub(known).as_secs_f64());
        }
        self.retries.add(u64::from(log.attempts.saturating_sub(1)));
        if let Some(usage) = request.tokens() {
            self.prompt_tokens.add(usage.prompt_tokens);
            self.completion_tokens.add(usage.completion_tokens);
        }
        self.lock().count(request);
    }

    /// Counts a response that was cut.
    pub(super) fn count_cut(&self) {
        self.cuts.inc();
    }

    /// The counts by labels.
    pub(crate) fn labeled(&self) -> LabeledCounts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, LabeledCounts> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LabeledCounts {
    fn count(&mut self, request: &RequestDetails) {
        let (log, status) = (&request.log, request.status.as_u16());
        *self.by_status.entry(status).or_default() += 1;
        *self.by_api.entry(request.api.name()).or_default() += 1;
        if let Some(error) = request.error {
            *self.errors.entry((error, status)).or_default() += 1;
        }
        if let (Some(kind), Some(endpoint)) = (log.kind, &log.endpoint) {
            let endpoint = endpoint.as_str();
            match self.by_backend.iter_mut().find(|((_, e), _)| e == endpoint) {
                Some((_, count)) => *count += 1,
                None => {
                    self.by_backend
                        .insert((kind.name(), endpoint.to_owned()), 1);
                }
            }
        }
        if let Some(health) = log.health {
            *self.by_health.entry(health).or_default() += 1;
        }
    }
}

/// A duration in milliseconds with three decimal places.
pub(super) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
