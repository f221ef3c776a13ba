//! Whether the API can be reached: one log line when that changes, and the pause before the next attempt.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::random;

/// The first pause after a failed call.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// The results of the last calls.
#[derive(Debug, Default)]
pub(crate) struct ApiLink {
    /// Failed calls since the last reply.
    failures: Mutex<u32>,
}

impl ApiLink {
    /// A process of the API has replied.
    pub(crate) fn replied(&self, host: &str) {
        if std::mem::take(&mut *self.lock()) > 0 {
            tracing::info!(host, "the API replies again");
        }
    }

    /// No process of the API could handle a call.
    pub(crate) fn failed(&self, error: &str) {
        let mut failures = self.lock();
        *failures = failures.saturating_add(1);
        if *failures == 1 {
            tracing::warn!(error, "failed to call the API, retrying");
        }
    }

    /// The pause before the next attempt: longer after each failure, and random, so that a thousand
    /// directors do not call at the same time.
    pub(crate) fn pause(&self) -> Duration {
        let doublings = self.lock().saturating_sub(1).min(10);
        let pause = (FIRST_PAUSE * 2u32.pow(doublings)).min(MAX_PAUSE);
        pause.mul_f64(0.5 + 0.5 * random::fraction())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u32> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_start_again_after_a_reply() {
        let link = ApiLink::default();
        link.failed("down");
        assert!(link.pause() <= FIRST_PAUSE);
        for _ in 0..20 {
            link.failed("down");
        }
        let longest = link.pause();
        assert!(
            longest <= MAX_PAUSE && longest >= MAX_PAUSE / 2,
            "{longest:?}"
        );
        link.replied("api");
        assert!(link.pause() <= FIRST_PAUSE);
    }
}
