//! How many requests an account may make: so many at once, then so many per time.
//!
//! One number per account and kind of request is enough for that: the moment until which its requests so far
//! have used up what it may.

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

/// So many requests in so long, all at once or one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least one.
    pub count: u32,
    /// In which time.
    pub per: Duration,
}

/// What each account may do.
#[derive(Debug, Default)]
pub struct RateLimits {
    create: Option<RateMeter>,
    other: Option<RateMeter>,
}

impl RateLimits {
    /// Requests that create predictions or trainings, and all others.
    pub fn new(create: Option<Rate>, other: Option<Rate>) -> Self {
        Self {
            create: create.map(RateMeter::new),
            other: other.map(RateMeter::new),
        }
    }

    /// Whether everybody may ask as much as they like.
    pub(super) fn are_none(&self) -> bool {
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

/// Lets a request through, or tells its caller when to come again.
pub(super) async fn check(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
    next: Next,
) -> Response {
    // Nobody can be named behind an address that needs no token.
    let meter = state
        .config
        .limits
        .meter(&request)
        .filter(|_| !is_open(request.uri().path()));
    let Some(meter) = meter else {
        return next.run(request).await;
    };
    let reading = meter.count(&caller.account, Instant::now());
    let mut response = match reading.wait {
        None => next.run(request).await,
        Some(wait) => ApiError::Throttled(wait).into_response(),
    };
    reading.tell(response.headers_mut());
    response
}

fn is_create(method: &Method, path: &str) -> bool {
    method == Method::POST && (path.ends_with("/predictions") || path.ends_with("/trainings"))
}

/// One limit of all accounts.
#[derive(Debug)]
struct RateMeter {
    rate: Rate,
    /// There are no more accounts than tokens.
    used_until: Mutex<HashMap<Account, Instant>>,
}

/// Where an account stands.
#[derive(Debug, PartialEq, Eq)]
struct RateLimitStatus {
    /// The request is one too many; the next may come after this time.
    wait: Option<Duration>,
    remaining: u32,
    /// Until everything may be used again.
    reset: Duration,
}

impl RateMeter {
    fn new(rate: Rate) -> Self {
        Self {
            rate: Rate {
                count: rate.count.max(1),
                ..rate
            },
            used_until: Mutex::default(),
        }
    }

    /// Counts a request, unless it is one too many.
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
    fn tell(&self, headers: &mut HeaderMap) {
        headers.insert("ratelimit-remaining", HeaderValue::from(self.remaining));
        headers.insert(
            "ratelimit-reset",
            HeaderValue::from(whole_seconds(self.reset)),
        );
    }
}

/// Rounded up: who waits so long has waited long enough.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> RateMeter {
        RateMeter::new(Rate {
            count: 3,
            per: Duration::from_secs(60),
        })
    }

    #[test]
    fn so_many_at_once_and_then_one_by_one() {
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
        assert_eq!(at(20).wait, None, "what was refused does not count");
        assert_eq!(at(21).wait, Some(Duration::from_secs(19)));
        assert_eq!(at(200).remaining, 2, "all of it is there again");
    }

    #[test]
    fn accounts_do_not_use_up_each_others() {
        let (meter, now) = (meter(), Instant::now());
        let ann = Account::parse("ann").unwrap();
        for _ in 0..4 {
            meter.count(&ann, now);
        }
        assert!(meter.count(&ann, now).wait.is_some());
        assert_eq!(meter.count(&Account::ANONYMOUS, now).wait, None);
    }

    #[test]
    fn only_what_makes_jobs_is_a_create() {
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
