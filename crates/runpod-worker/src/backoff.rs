//! Exponential backoff with jitter.

use std::time::Duration;

/// Growing pauses with jitter, so that a recovered platform does not get the requests of all workers at
/// the same moment.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// The pause after another failure: between half of the current maximum and all of it.
    pub(crate) fn fail(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        let share = getrandom::u32().map_or(1.0, |bits| f64::from(bits) / f64::from(u32::MAX));
        pause.mul_f64(0.5 + share / 2.0)
    }

    /// Resets the pause.
    pub(crate) fn succeed(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_are_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        let longest = |pause: Duration, limit: u64| {
            pause <= Duration::from_millis(limit) && pause >= Duration::from_millis(limit / 2)
        };
        for limit in [100, 200, 400, 400] {
            assert!(longest(backoff.fail(), limit));
        }
        backoff.succeed();
        assert!(longest(backoff.fail(), 100));
    }
}
