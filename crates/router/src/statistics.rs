//! What metrics and operators see of the models and endpoints.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::Account;

use crate::endpoint::EndpointKey;
use crate::health::HealthState;

/// How often the load is noted.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The averages are over this many samples.
const SAMPLES: usize = 60;

/// The state of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelStatistics {
    /// The name of the model.
    pub model: Arc<str>,
    /// The permits of all endpoints.
    pub total_permits: u32,
    /// The permits in use by requests of this model.
    pub used_permits: usize,
    /// The number of waiting requests.
    pub queue_size: usize,
    /// The average of `used_permits` over the last minute.
    pub mean_used_permits: f64,
    /// The average of `queue_size` over the last minute.
    pub mean_queue_size: f64,
    /// The part of the requests of the last minute that were refused at once.
    pub full_fraction: f64,
    /// How long a request holds its permit on average.
    pub service_time: Option<Duration>,
    /// The accounts with waiting requests, and their number.
    pub waiting_accounts: Vec<(Account, usize)>,
    /// The endpoints.
    pub endpoints: Vec<EndpointStatistics>,
}

/// The state of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointStatistics {
    /// The identity.
    pub key: EndpointKey,
    /// The permits in use by all models.
    pub used: u32,
    /// All permits.
    pub limit: u32,
    /// The permits that outlive their responses.
    pub detached: usize,
    /// Whether it is used.
    pub state: HealthState,
    /// The average time to the first byte.
    pub latency: Option<Duration>,
    /// How often it was avoided for a time since the start.
    pub backoffs: u64,
    /// How many attempts failed since the start.
    pub failures: u64,
}

/// The counters of a model.
#[derive(Default)]
pub(crate) struct GroupCounters {
    used: AtomicUsize,
    asked: AtomicU64,
    refused: AtomicU64,
    samples: Mutex<VecDeque<LoadSample>>,
}

#[derive(Clone, Copy)]
struct LoadSample {
    used: usize,
    queued: usize,
    asked: u64,
    refused: u64,
}

impl GroupCounters {
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn count_lease(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_release(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_ask(&self, refused: bool) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.refused
            .fetch_add(u64::from(refused), Ordering::Relaxed);
    }

    pub(crate) fn sample(&self, queued: usize) {
        let sample = self.now(queued);
        let mut samples = self.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// These statistics with the averages.
    pub(crate) fn statistics(&self, statistics: ModelStatistics) -> ModelStatistics {
        let now = self.now(statistics.queue_size);
        let samples = self.lock();
        let mean = |value: fn(&LoadSample) -> usize| match samples.len() {
            0 => number(value(&now)),
            n => number(samples.iter().map(value).sum()) / number(n),
        };
        let (asked, refused) = samples.front().map_or((0, 0), |s| (s.asked, s.refused));
        let full_fraction = match now.asked - asked {
            0 => 0.0,
            asked => ratio(now.refused - refused, asked),
        };
        ModelStatistics {
            mean_used_permits: mean(|sample| sample.used),
            mean_queue_size: mean(|sample| sample.queued),
            full_fraction,
            ..statistics
        }
    }

    fn now(&self, queued: usize) -> LoadSample {
        LoadSample {
            used: self.used(),
            queued,
            // Read before `asked`, so that there are never more refusals than requests.
            refused: self.refused.load(Ordering::Relaxed),
            asked: self.asked.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LoadSample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average is not exact")]
fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a fraction is not exact")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_the_samples_of_the_last_minute() {
        let counters = GroupCounters::default();
        let statistics = || {
            let s = counters.statistics(ModelStatistics::default());
            (s.mean_used_permits, s.mean_queue_size, s.full_fraction)
        };
        assert_eq!(statistics(), (0.0, 0.0, 0.0));
        counters.count_lease();
        counters.sample(0);
        counters.count_lease();
        counters.sample(4);
        counters.count_ask(true);
        counters.count_ask(false);
        assert_eq!(statistics(), (1.5, 2.0, 0.5));
        counters.count_release();
        for _ in 0..SAMPLES {
            counters.sample(7);
        }
        assert_eq!(statistics(), (1.0, 7.0, 0.0));
    }
}
