//! How long to leave a platform alone that does not answer as it should.

use std::time::Duration;

/// Growing pauses, each somewhat by chance, so that a platform that comes back is not met by all its workers at
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

    /// The pause after one more failure: between half of it and all of it.
    pub(crate) fn fail(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        let share = getrandom::u32().map_or(1.0, |bits| f64::from(bits) / f64::from(u32::MAX));
        pause.mul_f64(0.5 + share / 2.0)
    }

    /// It works again.
    pub(crate) fn succeed(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_again() {
        let mut pace = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        let longest = |pause: Duration, limit: u64| {
            pause <= Duration::from_millis(limit) && pause >= Duration::from_millis(limit / 2)
        };
        for limit in [100, 200, 400, 400] {
            assert!(longest(pace.fail(), limit));
        }
        pace.succeed();
        assert!(longest(pace.fail(), 100));
    }
}
