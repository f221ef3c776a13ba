//! How much may be asked of an endpoint: Runpod's own limits, for who wants them.

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

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Run,
    RunSync,
    Status,
    Stream,
    Cancel,
    Purge,
    Requests,
    OpenAi,
}

/// How much may be asked.
struct Limit {
    /// How often in ten seconds.
    often: usize,
    /// How many at once.
    at_once: usize,
}

impl Limit {
    /// The larger of this and what so many workers are good for.
    fn with(self, workers: usize) -> Self {
        let grown = |least: usize| least.max(least.saturating_mul(workers) / WORKERS_COVERED);
        Self {
            often: grown(self.often),
            at_once: grown(self.at_once),
        }
    }
}

impl Asked {
    /// With few workers or none.
    fn limit(self) -> Limit {
        let (often, at_once) = match self {
            Self::Run => (1000, 200),
            Self::RunSync | Self::Status | Self::Stream | Self::OpenAi => (2000, 400),
            Self::Cancel => (100, 20),
            Self::Requests => (10, 2),
            Self::Purge => (2, usize::MAX),
        };
        Limit { often, at_once }
    }
}

/// Too much was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("this was asked more than {0} times in ten seconds; try again in {1} s")]
    TooOften(usize, u64),
    #[error("this is asked more than {0} times at once; try again when others are answered")]
    AtOnce(usize),
}

impl TooMuch {
    /// The seconds after which it is worth trying again.
    pub(super) fn retry_after(self) -> u64 {
        match self {
            Self::TooOften(_, seconds) => seconds,
            Self::AtOnce(_) => 1,
        }
    }
}

/// Whose question, to which endpoint.
type Key = (Account, String, Asked);
type Uses = Arc<Mutex<HashMap<Key, Use>>>;

/// Whether the limits of Runpod's cloud are kept.
#[derive(Default)]
pub struct EndpointLimits {
    /// What each account has asked of each endpoint lately; absent when they are not kept.
    uses: Option<Uses>,
}

/// What was asked since a moment, and is not answered.
struct Use {
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
    pub(super) fn enter(
        &self,
        account: &Account,
        endpoint: &str,
        asked: Asked,
        workers: impl FnOnce() -> usize,
    ) -> Result<Place, TooMuch> {
        let Some(uses) = &self.uses else {
            return Ok(Place(None));
        };
        let (key, limit, now) = (
            (account.clone(), endpoint.to_owned(), asked),
            asked.limit(),
            Instant::now(),
        );
        let mut all = uses.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(key.clone()).or_insert(Use {
            since: now,
            count: 0,
            open: 0,
        });
        if now.saturating_duration_since(entry.since) >= WINDOW {
            (entry.since, entry.count) = (now, 0);
        }
        entry.count += 1;
        let within = entry.count <= limit.often && entry.open < limit.at_once;
        let limit = if within { limit } else { limit.with(workers()) };
        if entry.count > limit.often {
            let left = WINDOW.saturating_sub(now.saturating_duration_since(entry.since));
            return Err(TooMuch::TooOften(limit.often, left.as_secs() + 1));
        }
        if entry.open >= limit.at_once {
            return Err(TooMuch::AtOnce(limit.at_once));
        }
        entry.open += 1;
        Ok(Place(Some((Arc::clone(uses), key))))
    }
}

/// A question that is not answered yet.
#[must_use = "dropping it counts the question out"]
pub(super) struct Place(Option<(Uses, Key)>);

impl Drop for Place {
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

    fn nobody() -> Account {
        Account::ANONYMOUS
    }

    #[tokio::test(start_paused = true)]
    async fn each_account_endpoint_and_question_has_its_own_limit() {
        let limits = EndpointLimits::cloud();
        let refused = |endpoint: &str, asked| limits.enter(&nobody(), endpoint, asked, || 1).err();
        assert_eq!(
            [(); 3].map(|()| refused("a", Asked::Purge)),
            [None, None, Some(TooMuch::TooOften(2, 11))]
        );
        assert_eq!(
            (refused("b", Asked::Purge), refused("a", Asked::Run)),
            (None, None)
        );
        assert!(
            limits
                .enter(&Account::parse("ann").unwrap(), "a", Asked::Purge, || 1)
                .is_ok()
        );
        tokio::time::advance(WINDOW).await;
        assert_eq!(refused("a", Asked::Purge), None);
        assert!([(); 3].iter().all(|()| {
            EndpointLimits::default()
                .enter(&nobody(), "a", Asked::Purge, || 1)
                .is_ok()
        }));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_answered_at_once() {
        let limits = EndpointLimits::cloud();
        let enter = |workers: usize| limits.enter(&nobody(), "a", Asked::Requests, || workers);
        let places: Vec<Place> = (0..2).map(|_| enter(0).ok().unwrap()).collect();
        assert_eq!(enter(40).err(), Some(TooMuch::AtOnce(2)));
        assert!(enter(60).is_ok(), "more workers, more at once");
        drop(places);
        assert!(enter(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn limits_grow_with_the_workers_beyond_those_that_are_covered() {
        let often = |workers: usize| {
            let limits = EndpointLimits::cloud();
            (0..5000)
                .take_while(|_| {
                    limits
                        .enter(&nobody(), "a", Asked::Status, || workers)
                        .is_ok()
                })
                .count()
        };
        assert_eq!([0, 20, 40, 50].map(often), [2000, 2000, 2000, 2500]);
    }
}
