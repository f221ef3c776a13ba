//! The optional rate limits of an endpoint: those of Runpod's cloud.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Account;
use tokio::time::Instant;

/// The time over which requests are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// With more workers than this, the limits grow. Runpod documents the rule (the larger of a fixed
/// limit and a limit per worker) and one number, 50 per worker where the fixed limit is 2000; the
/// other limits use the same ratio.
const WORKERS_COVERED: usize = 40;

/// The kinds of requests that have their own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RequestKind {
    Run,
    RunSync,
    Status,
    Stream,
    Cancel,
    Purge,
    Requests,
    OpenAi,
}

/// The limit of one kind of request.
struct RateLimit {
    /// Requests per [`WINDOW`].
    per_window: usize,
    /// Concurrent requests.
    concurrent: usize,
}

impl RateLimit {
    /// The larger of this limit and the limit for this number of workers.
    fn with(self, workers: usize) -> Self {
        let grown = |least: usize| least.max(least.saturating_mul(workers) / WORKERS_COVERED);
        Self {
            per_window: grown(self.per_window),
            concurrent: grown(self.concurrent),
        }
    }
}

impl RequestKind {
    /// The limit with few or no workers.
    fn limit(self) -> RateLimit {
        let (per_window, concurrent) = match self {
            Self::Run => (1000, 200),
            Self::RunSync | Self::Status | Self::Stream | Self::OpenAi => (2000, 400),
            Self::Cancel => (100, 20),
            Self::Requests => (10, 2),
            Self::Purge => (2, usize::MAX),
        };
        RateLimit {
            per_window,
            concurrent,
        }
    }
}

/// A limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RateLimitExceeded {
    #[error(
        "more than {0} requests of this kind in ten seconds (`--cloud-limits`); try again in {1} s"
    )]
    Rate(usize, u64),
    #[error(
        "more than {0} concurrent requests of this kind (`--cloud-limits`); try again when others have finished"
    )]
    Concurrency(usize),
}

impl RateLimitExceeded {
    /// The value of `Retry-After`, in seconds.
    pub(super) fn retry_after(self) -> u64 {
        match self {
            Self::Rate(_, seconds) => seconds,
            Self::Concurrency(_) => 1,
        }
    }
}

/// Account, endpoint and kind of request.
type UsageKey = (Account, String, RequestKind);
type UsageMap = Arc<Mutex<HashMap<UsageKey, UsageCounter>>>;

/// The rate limits of all endpoints; by default there are none.
#[derive(Default)]
pub struct EndpointLimits {
    /// The recent requests of each account to each endpoint; `None` when there are no limits.
    uses: Option<UsageMap>,
}

/// The requests since a point in time, and those without a response.
struct UsageCounter {
    since: Instant,
    count: usize,
    open: usize,
}

impl EndpointLimits {
    /// The limits of Runpod's cloud.
    pub fn cloud() -> Self {
        Self {
            uses: Some(Arc::default()),
        }
    }

    /// Counts a request until the permit is dropped. `workers` is called only when the limit depends
    /// on it.
    pub(super) fn acquire(
        &self,
        account: &Account,
        endpoint: &str,
        kind: RequestKind,
        workers: impl FnOnce() -> usize,
    ) -> Result<RequestPermit, RateLimitExceeded> {
        let Some(uses) = &self.uses else {
            return Ok(RequestPermit(None));
        };
        let (key, limit, now) = (
            (account.clone(), endpoint.to_owned(), kind),
            kind.limit(),
            Instant::now(),
        );
        let mut all = uses.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(key.clone()).or_insert(UsageCounter {
            since: now,
            count: 0,
            open: 0,
        });
        if now.saturating_duration_since(entry.since) >= WINDOW {
            (entry.since, entry.count) = (now, 0);
        }
        entry.count += 1;
        let within = entry.count <= limit.per_window && entry.open < limit.concurrent;
        let limit = if within { limit } else { limit.with(workers()) };
        if entry.count > limit.per_window {
            let left = WINDOW.saturating_sub(now.saturating_duration_since(entry.since));
            return Err(RateLimitExceeded::Rate(
                limit.per_window,
                left.as_secs() + 1,
            ));
        }
        if entry.open >= limit.concurrent {
            return Err(RateLimitExceeded::Concurrency(limit.concurrent));
        }
        entry.open += 1;
        Ok(RequestPermit(Some((Arc::clone(uses), key))))
    }
}

/// A request without a response.
#[must_use = "dropping the permit ends the request's count"]
pub(super) struct RequestPermit(Option<(UsageMap, UsageKey)>);

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some((uses, key)) = self.0.take()
            && let Some(entry) = uses
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_mut(&key)
        {
            entry.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anonymous() -> Account {
        Account::ANONYMOUS
    }

    #[tokio::test(start_paused = true)]
    async fn each_account_endpoint_and_kind_of_request_has_its_own_limit() {
        let limits = EndpointLimits::cloud();
        let refused =
            |endpoint: &str, kind| limits.acquire(&anonymous(), endpoint, kind, || 1).err();
        assert_eq!(
            [(); 3].map(|()| refused("a", RequestKind::Purge)),
            [None, None, Some(RateLimitExceeded::Rate(2, 11))]
        );
        assert_eq!(
            (
                refused("b", RequestKind::Purge),
                refused("a", RequestKind::Run)
            ),
            (None, None)
        );
        assert!(
            limits
                .acquire(
                    &Account::parse("ann").unwrap(),
                    "a",
                    RequestKind::Purge,
                    || 1
                )
                .is_ok()
        );
        tokio::time::advance(WINDOW).await;
        assert_eq!(refused("a", RequestKind::Purge), None);
        assert!([(); 3].iter().all(|()| {
            EndpointLimits::default()
                .acquire(&anonymous(), "a", RequestKind::Purge, || 1)
                .is_ok()
        }));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_limited() {
        let limits = EndpointLimits::cloud();
        let acquire =
            |workers: usize| limits.acquire(&anonymous(), "a", RequestKind::Requests, || workers);
        let permits: Vec<RequestPermit> = (0..2).map(|_| acquire(0).ok().unwrap()).collect();
        assert_eq!(acquire(40).err(), Some(RateLimitExceeded::Concurrency(2)));
        assert!(
            acquire(60).is_ok(),
            "more workers allow more concurrent requests"
        );
        drop(permits);
        assert!(acquire(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn limits_grow_with_the_number_of_workers() {
        let per_window = |workers: usize| {
            let limits = EndpointLimits::cloud();
            (0..5000)
                .take_while(|_| {
                    limits
                        .acquire(&anonymous(), "a", RequestKind::Status, || workers)
                        .is_ok()
                })
                .count()
        };
        assert_eq!([0, 20, 40, 50].map(per_window), [2000, 2000, 2000, 2500]);
    }
}
