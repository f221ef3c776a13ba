//! Rate limits per account: a burst of `count` requests, then a steady rate.
//!
//! It stores one value per account and kind of request: the time until which the requests so far
//! have used up the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tidegate_core::Account;
use tokio::time::Instant;

use super::reply::ApiError;
use super::{AppState, is_open};
use crate::access::Identity;

/// A number of requests in a period, all at once or spread out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests; at least 1.
    pub count: u32,
    /// The period.
    pub per: Duration,
}

/// The rate limits that apply to each account.
#[derive(Debug, Default)]
pub struct RateLimits {
    create: Option<RateMeter>,
    other: Option<RateMeter>,
}

impl RateLimits {
    /// Limits for requests that create predictions or trainings, and for all others.
    pub fn new(create: Option<Rate>, other: Option<Rate>) -> Self {
        Self {
            create: create.map(|rate| RateMeter::new(rate, "--rate-limit-create")),
            other: other.map(|rate| RateMeter::new(rate, "--rate-limit")),
        }
    }

    /// Whether there is no limit at all.
    pub(super) fn is_unlimited(&self) -> bool {
        self.create.is_none() && self.other.is_none()
    }

    fn meter(&self, request: &Request) -> Option<&RateMeter> {
        if is_create(request.method(), request.uri().path()) {
            self.create.as_ref()
        } else {
            self.other.as_ref()
        }
    }
}

/// Passes a request on, or refuses it with the time after which the client may retry.
pub(super) async fn check(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
    next: Next,
) -> Response {
    // A path that needs no token has no account.
    let meter = state
        .config
        .limits
        .meter(&request)
        .filter(|_| !is_open(request.uri().path()));
    let Some(meter) = meter else {
        return next.run(request).await;
    };
    let status = meter.count(&caller.account, Instant::now());
    let mut response = match status.wait {
        None => next.run(request).await,
        Some(wait) => ApiError::Throttled {
            wait,
            flag: meter.flag,
        }
        .into_response(),
    };
    status.write_headers(response.headers_mut());
    response
}

fn is_create(method: &Method, path: &str) -> bool {
    method == Method::POST && (path.ends_with("/predictions") || path.ends_with("/trainings"))
}

/// A limit, with its use by each account.
#[derive(Debug)]
struct RateMeter {
    rate: Rate,
    /// The flag that sets the rate.
    flag: &'static str,
    /// There are at most as many accounts as tokens.
    used_until: Mutex<HashMap<Account, Instant>>,
}

/// The state of an account's limit after a request.
#[derive(Debug, PartialEq, Eq)]
struct RateLimitStatus {
    /// The request is over the limit; the next one is allowed after this time.
    wait: Option<Duration>,
    remaining: u32,
    /// The time until the whole limit is available again.
    reset: Duration,
}

impl RateMeter {
    fn new(rate: Rate, flag: &'static str) -> Self {
        Self {
            flag,
            rate: Rate {
                count: rate.count.max(1),
                ..rate
            },
            used_until: Mutex::default(),
        }
    }

    /// Counts a request, unless it is over the limit.
    fn count(&self, account: &Account, now: Instant) -> RateLimitStatus {
        let Rate { count, per } = self.rate;
        let each = per / count;
        let mut all = self
            .used_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let until = all.entry(account.clone()).or_insert(now);
        let used = until.saturating_duration_since(now);
        let wait = (used + each)
            .checked_sub(per)
            .filter(|wait| !wait.is_zero());
        if wait.is_none() {
            *until = now + used + each;
        }
        let reset = until.saturating_duration_since(now);
        let left = per
            .saturating_sub(reset)
            .as_nanos()
            .checked_div(each.as_nanos())
            .unwrap_or_default();
        RateLimitStatus {
            wait,
            remaining: u32::try_from(left).unwrap_or(count),
            reset,
        }
    }
}

impl RateLimitStatus {
    fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert("ratelimit-remaining", HeaderValue::from(self.remaining));
        headers.insert(
            "ratelimit-reset",
            HeaderValue::from(whole_seconds(self.reset)),
        );
    }
}

/// Rounded up, so that a client that waits this long is not refused again.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> RateMeter {
        let rate = Rate {
            count: 3,
            per: Duration::from_secs(60),
        };
        RateMeter::new(rate, "--rate-limit")
    }

    #[test]
    fn a_burst_and_then_a_steady_rate() {
        let (meter, ann, start) = (meter(), Account::parse("ann").unwrap(), Instant::now());
        let at = |second| meter.count(&ann, start + Duration::from_secs(second));
        assert_eq!(
            (at(0).remaining, at(0).remaining, at(0).remaining),
            (2, 1, 0)
        );
        let refused = at(5);
        assert_eq!(
            (refused.wait, refused.remaining),
            (Some(Duration::from_secs(15)), 0)
        );
        assert_eq!(refused.reset, Duration::from_secs(55));
        assert_eq!(at(20).wait, None, "a refused request does not count");
        assert_eq!(at(21).wait, Some(Duration::from_secs(19)));
        assert_eq!(at(200).remaining, 2, "the whole limit is available again");
    }

    #[test]
    fn accounts_have_separate_limits() {
        let (meter, now) = (meter(), Instant::now());
        let ann = Account::parse("ann").unwrap();
        for _ in 0..4 {
            meter.count(&ann, now);
        }
        assert!(meter.count(&ann, now).wait.is_some());
        assert_eq!(meter.count(&Account::ANONYMOUS, now).wait, None);
    }

    #[test]
    fn only_requests_that_make_jobs_count_as_create() {
        for path in [
            "/v1/predictions",
            "/v1/models/a/b/predictions",
            "/v1/deployments/a/b/predictions",
            "/v1/models/a/b/versions/c/trainings",
        ] {
            assert!(
                is_create(&Method::POST, path) && !is_create(&Method::GET, path),
                "{path}"
            );
        }
        for path in ["/v1/predictions/a/cancel", "/v1/files", "/v1/deployments"] {
            assert!(!is_create(&Method::POST, path), "{path}");
        }
    }
}
