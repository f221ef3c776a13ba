//! Limits the retries of all requests together, so that an outage is not made worse by them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests and retries are counted in buckets of one second.
const BUCKETS: usize = 10;
/// Retries per second that are always allowed.
const MIN_PER_SECOND: u32 = 10;

/// Requests and retries of the last ten seconds.
#[derive(Debug)]
pub struct RetryBudget {
    started: Instant,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// The second of the newest bucket, counted from `started`.
    newest: u64,
    requests: [u32; BUCKETS],
    retries: [u32; BUCKETS],
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            buckets: Mutex::default(),
        }
    }
}

impl RetryBudget {
    /// Counts a request.
    pub fn count_request(&self) {
        self.with_buckets(|buckets, now| buckets.requests[now] += 1);
    }

    /// Counts a retry, unless retries already are more than this share of the requests and more than ten
    /// per second. Returns whether the retry is allowed.
    pub fn allow_retry(&self, share: f64) -> bool {
        self.with_buckets(|buckets, now| {
            let requests: u32 = buckets.requests.iter().sum();
            let retries: u32 = buckets.retries.iter().sum();
            let of_traffic = f64::from(retries) < f64::from(requests) * share;
            let of_second = buckets.retries[now] < MIN_PER_SECOND;
            let allowed = share > 0.0 && (of_traffic || of_second);
            buckets.retries[now] += u32::from(allowed);
            allowed
        })
    }

    fn with_buckets<T>(&self, change: impl FnOnce(&mut Buckets, usize) -> T) -> T {
        let second = whole_seconds(self.started.elapsed());
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.advance(second);
        let now = index(second);
        change(&mut buckets, now)
    }
}

impl Buckets {
    /// Empties the buckets of the seconds that have passed.
    fn advance(&mut self, second: u64) {
        let first = self.newest.max(second.saturating_sub(BUCKETS as u64)) + 1;
        for passed in first..=second {
            self.requests[index(passed)] = 0;
            self.retries[index(passed)] = 0;
        }
        self.newest = self.newest.max(second);
    }
}

fn whole_seconds(elapsed: Duration) -> u64 {
    elapsed.as_secs()
}

fn index(second: u64) -> usize {
    usize::try_from(second % BUCKETS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(budget: &RetryBudget, share: f64, tries: usize) -> usize {
        (0..tries).filter(|_| budget.allow_retry(share)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_retries_are_always_allowed() {
        let budget = RetryBudget::default();
        assert_eq!(allowed(&budget, 0.2, 100), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(allowed(&budget, 0.2, 100), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn more_retries_are_a_share_of_the_requests() {
        let budget = RetryBudget::default();
        (0..1000).for_each(|_| budget.count_request());
        assert_eq!(allowed(&budget, 0.2, 1000), 200);
        tokio::time::advance(Duration::from_secs(BUCKETS as u64)).await;
        assert_eq!(allowed(&budget, 0.2, 1000), 10, "old requests do not count");
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_of_zero_allows_none() {
        let budget = RetryBudget::default();
        (0..1000).for_each(|_| budget.count_request());
        assert_eq!(allowed(&budget, 0.0, 10), 0);
    }
}
