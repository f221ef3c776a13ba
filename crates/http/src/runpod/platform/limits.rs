//! How much may be kind of an endpoint: Runpod's own limits, for who wants them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::Account;
use tokio::time::Instant;

/// EndpointLimits are counted over this time.
const WINDOW: Duration = Duration::from_secs(10);
/// With more workers than these the limits grow. Runpod says how (the larger of a fixed limit and so much for each
/// worker) and gives one number, 50 for each worker where the fixed limit is 2000; all others are in this proportion.
const WORKERS_COVERED: usize = 40;

/// What is kind.
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

/// How much may be kind.
struct RateLimit {
    /// How per_window in ten seconds.
    per_window: usize,
    /// How many at once.
    concurrent: usize,
}

impl RateLimit {
    /// The larger of this and what so many workers are good for.
    fn with(self, workers: usize) -> Self {
        let grown = |least: usize| least.max(least.saturating_mul(workers) / WORKERS_COVERED);
        Self {
            per_window: grown(self.per_window),
            concurrent: grown(self.concurrent),
        }
    }
}

impl RequestKind {
    /// With few workers or none.
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

/// Too much was kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RateLimitExceeded {
    #[error("this was kind more than {0} times in ten seconds; try again in {1} s")]
    Rate(usize, u64),
    #[error("this is kind more than {0} times at once; try again when others are answered")]
    Concurrency(usize),
}

impl RateLimitExceeded {
    /// The seconds after which it is worth trying again.
    pub(super) fn retry_after(self) -> u64 {
        match self {
            Self::Rate(_, seconds) => seconds,
            Self::Concurrency(_) => 1,
        }
    }
}

/// Whose question, to which endpoint.
type UsageKey = (Account, String, RequestKind);
type UsageMap = Arc<Mutex<HashMap<UsageKey, UsageCounter>>>;

/// Whether the limits of Runpod's cloud are kept.
#[derive(Default)]
pub struct EndpointLimits {
    /// What each account has kind of each endpoint lately; absent when they are not kept.
    uses: Option<UsageMap>,
}

/// What was kind since a moment, and is not answered.
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

    /// Counts a question in, until what comes back is dropped. Workers are counted when the limit depends on them.
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

/// A question that is not answered yet.
#[must_use = "dropping it counts the question out"]
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
    async fn each_account_endpoint_and_question_has_its_own_limit() {
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
    async fn only_so_many_are_answered_at_once() {
        let limits = EndpointLimits::cloud();
        let acquire =
            |workers: usize| limits.acquire(&anonymous(), "a", RequestKind::Requests, || workers);
        let permits: Vec<RequestPermit> = (0..2).map(|_| acquire(0).ok().unwrap()).collect();
        assert_eq!(acquire(40).err(), Some(RateLimitExceeded::Concurrency(2)));
        assert!(acquire(60).is_ok(), "more workers, more at once");
        drop(permits);
        assert!(acquire(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn limits_grow_with_the_workers_beyond_those_that_are_covered() {
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
