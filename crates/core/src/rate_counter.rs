//! The port of rate limits that several processes share: it counts the requests of all of them.
//!
//! A limit is a burst of `count` requests and then a steady rate. One value per key is enough: the time until
//! which the requests so far have used up the limit.

use std::time::Duration;

use async_trait::async_trait;

/// A number of requests in a period, all at once or spread out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests; at least 1.
    pub count: u32,
    /// The period.
    pub per: Duration,
}

impl Rate {
    /// The part of the period that one request uses.
    pub fn each(self) -> Duration {
        self.per / self.count.max(1)
    }
}

/// The use of a limit after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateUse {
    /// The request is over the limit and was not counted; the next one is allowed after this time.
    pub wait: Option<Duration>,
    /// The time until the whole limit is available again.
    pub reset: Duration,
}

impl RateUse {
    /// The use of a limit by a request, if earlier ones have used up the time `used`.
    pub fn after(rate: Rate, used: Duration) -> Self {
        let each = rate.each();
        let wait = (used + each)
            .checked_sub(rate.per)
            .filter(|wait| !wait.is_zero());
        let reset = if wait.is_none() { used + each } else { used };
        Self { wait, reset }
    }
}

/// The requests cannot be counted now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("requests cannot be counted: {0}")]
pub struct RateCounterError(pub String);

/// Counts requests of all processes. Its own clock decides.
#[async_trait]
pub trait RateCounter: Send + Sync {
    /// Counts a request for `key`, unless it is over the limit.
    async fn count(&self, key: &str, rate: Rate) -> Result<RateUse, RateCounterError>;
}
