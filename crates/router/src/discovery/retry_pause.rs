//! The pauses between attempts that fail.

use std::time::Duration;

use tidegate_core::random;

/// A pause that doubles with each failure, with jitter so that many routers do not ask in step.
pub(crate) struct RetryPause {
    first: Duration,
    last: Duration,
    failures: u32,
}

impl RetryPause {
    pub(crate) const fn new(first: Duration, last: Duration) -> Self {
        Self {
            first,
            last,
            failures: 0,
        }
    }

    /// The pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        doubled
            .min(self.last)
            .mul_f64(0.5 + 0.5 * random::fraction())
    }

    /// The next failure is the first one again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}
