//! Moving averages that many threads update without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The weight of a new sample.
const ALPHA: f64 = 0.2;

/// An exponentially weighted moving average of durations.
#[derive(Debug, Default)]
pub struct Ewma {
    /// The bits of the average in seconds; 0 before the first sample.
    seconds: AtomicU64,
}

impl Ewma {
    /// Adds a sample.
    pub fn record(&self, sample: Duration) {
        // Zero means that there is no sample.
        let sample = sample.as_secs_f64().max(f64::MIN_POSITIVE);
        let update = |bits| {
            let next = match f64::from_bits(bits) {
                0.0 => sample,
                average => average + ALPHA * (sample - average),
            };
            Some(next.to_bits())
        };
        self.seconds
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .ok(); // The closure never returns `None`.
    }

    /// The average, if there was a sample.
    pub fn get(&self) -> Option<Duration> {
        let seconds = f64::from_bits(self.seconds.load(Ordering::Relaxed));
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }

    /// Forgets all samples.
    pub fn reset(&self) {
        self.seconds.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_the_samples() {
        let ewma = Ewma::default();
        assert_eq!(ewma.get(), None);
        ewma.record(Duration::from_secs(1));
        assert_eq!(ewma.get(), Some(Duration::from_secs(1)));
        for _ in 0..50 {
            ewma.record(Duration::from_secs(3));
        }
        let seconds = ewma.get().unwrap().as_secs_f64();
        assert!((seconds - 3.0).abs() < 0.01, "{seconds}");
        ewma.reset();
        assert_eq!(ewma.get(), None);
    }
}
