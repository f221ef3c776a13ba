//! Rate limits per account: a burst of `count` requests, then a steady rate.
//!
//! It stores one value per account and kind of request: the time until which the requests so far
//! have used up the limit. In a cluster the value is shared by all processes; while that fails, each
//! counts for itself, from what it knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tidegate_core::Account;
use tidegate_core::rate_counter::{Rate, RateCounter, RateUse};
use tokio::time::Instant;

use crate::access::Identity;
use crate::openai::{self, error::OpenAiError};
use crate::replicate;
use crate::request_metrics::RejectReason;
use crate::shared::response::whole_seconds;
use crate::workers_ai::{self, error::WorkersAiError};

/// How long a request waits for the shared counter.
const SHARED_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the shared counter is not asked after it failed, so that requests do not wait for it.
const SHARED_PAUSE: Duration = Duration::from_secs(2);

/// The rate limits that apply to each account.
#[derive(Default)]
pub struct RateLimits {
    create: Option<RateMeter>,
    other: Option<RateMeter>,
    shared: Option<SharedCounter>,
}

/// Counts the requests to all processes of a cluster.
struct SharedCounter {
    counter: Arc<dyn RateCounter>,
    /// When it is asked again, after it failed.
    paused_until: Mutex<Option<Instant>>,
}

impl RateLimits {
    /// Limits for requests that create predictions or trainings or run a model, and for all others.
    pub fn new(create: Option<Rate>, other: Option<Rate>) -> Self {
        Self {
            create: create.map(|rate| RateMeter::new(rate, "--rate-limit-create", "create")),
            other: other.map(|rate| RateMeter::new(rate, "--rate-limit", "other")),
            shared: None,
        }
    }

    /// The same limits for all processes that use this counter together.
    pub fn shared_by(self, counter: Arc<dyn RateCounter>) -> Self {
        let shared = SharedCounter {
            counter,
            paused_until: Mutex::default(),
        };
        Self {
            shared: Some(shared),
            ..self
        }
    }

    /// Counts a request, unless it is over the limit.
    async fn count(&self, meter: &RateMeter, account: &Account) -> RateLimitStatus {
        let shared = match &self.shared {
            Some(shared) => shared.count(meter, account).await,
            None => None,
        };
        match shared {
            Some(used) => {
                meter.remember(account, used.reset, Instant::now());
                RateLimitStatus::of(meter.rate, used)
            }
            None => meter.count(account, Instant::now()),
        }
    }

    /// Whether there is no limit at all.
    fn is_unlimited(&self) -> bool {
        self.create.is_none() && self.other.is_none()
    }

    fn meter(&self, method: &Method, path: &str) -> Option<&RateMeter> {
        if is_create(method, path) {
            self.create.as_ref()
        } else if runs_model(method, path) {
            // `--rate-limit` alone covers all requests of these APIs.
            self.create.as_ref().or(self.other.as_ref())
        } else {
            self.other.as_ref()
        }
    }
}

/// The same routes with these limits. Without limits, requests do not pass through the middleware at all.
pub(crate) fn limited<S>(routes: Router<S>, limits: &Arc<RateLimits>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    if limits.is_unlimited() {
        return routes;
    }
    routes.layer(from_fn_with_state(Arc::clone(limits), check))
}

/// Passes a request on, or refuses it with the time after which the client may retry.
async fn check(
    State(limits): State<Arc<RateLimits>>,
    caller: Identity,
    request: Request,
    next: Next,
) -> Response {
    // A path that needs no token has no account.
    let meter = limits
        .meter(request.method(), request.uri().path())
        .filter(|_| !replicate::is_open(request.uri().path()));
    let Some(meter) = meter else {
        return next.run(request).await;
    };
    let status = limits.count(meter, &caller.account).await;
    let mut response = match status.wait {
        None => next.run(request).await,
        Some(wait) => {
            let throttled = Throttled {
                wait,
                flag: meter.flag,
            };
            throttled.response(request.uri().path())
        }
    };
    status.write_headers(response.headers_mut());
    response
}

/// A request over the limit of its account.
#[derive(Debug, thiserror::Error)]
#[error("Request was throttled. Your rate limit resets in ~{}s. The operator can raise it with `{flag}`.", whole_seconds(*.wait))]
struct Throttled {
    wait: Duration,
    /// The flag that sets the limit.
    flag: &'static str,
}

impl Throttled {
    /// The response, in the format of the API that the path belongs to.
    fn response(&self, path: &str) -> Response {
        let (message, seconds) = (self.to_string(), whole_seconds(self.wait));
        let response = match path {
            path if openai::is_own_path(path) => {
                OpenAiError::rate_limited(message, seconds).into_response()
            }
            path if workers_ai::is_own_path(path) => {
                WorkersAiError::rate_limited(message, seconds).into_response()
            }
            replicate::MODELS_PATH => replicate::reply::throttled_at_models(&message, seconds),
            _ => replicate::reply::throttled(&message, seconds),
        };
        RejectReason::RateLimited.tag(response)
    }
}

fn is_create(method: &Method, path: &str) -> bool {
    method == Method::POST && (path.ends_with("/predictions") || path.ends_with("/trainings"))
}

/// Whether a request of OpenAI's or the Workers AI API runs a model. The others of these APIs only read.
fn runs_model(method: &Method, path: &str) -> bool {
    method == Method::POST && (openai::is_own_path(path) || workers_ai::is_own_path(path))
}

impl SharedCounter {
    /// `None` if the requests cannot be counted together now.
    async fn count(&self, meter: &RateMeter, account: &Account) -> Option<RateUse> {
        if self.is_paused() {
            return None;
        }
        let key = format!("{}:{}", meter.name, account.as_str());
        let counting = self.counter.count(&key, meter.rate);
        let error = match tokio::time::timeout(SHARED_TIMEOUT, counting).await {
            Ok(Ok(used)) => return Some(used),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {SHARED_TIMEOUT:?}"),
        };
        tracing::warn!(
            error,
            "failed to count requests for all processes, each counts its own"
        );
        *self.lock() = Some(Instant::now() + SHARED_PAUSE);
        None
    }

    fn is_paused(&self) -> bool {
        self.lock().is_some_and(|until| Instant::now() < until)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paused_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A limit, with its use by each account.
#[derive(Debug)]
struct RateMeter {
    rate: Rate,
    /// The flag that sets the rate.
    flag: &'static str,
    /// The name of the limit in keys of the shared counter.
    name: &'static str,
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
    fn new(rate: Rate, flag: &'static str, name: &'static str) -> Self {
        Self {
            flag,
            name,
            rate: Rate {
                count: rate.count.max(1),
                ..rate
            },
            used_until: Mutex::default(),
        }
    }

    /// Counts a request, unless it is over the limit.
    fn count(&self, account: &Account, now: Instant) -> RateLimitStatus {
        let mut all = self.lock();
        let until = all.entry(account.clone()).or_insert(now);
        let used = RateUse::after(self.rate, until.saturating_duration_since(now));
        *until = now + used.reset;
        RateLimitStatus::of(self.rate, used)
    }

    /// Records how much of the limit all processes have used.
    fn remember(&self, account: &Account, reset: Duration, now: Instant) {
        self.lock().insert(account.clone(), now + reset);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Account, Instant>> {
        self.used_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateLimitStatus {
    fn of(rate: Rate, used: RateUse) -> Self {
        let left = rate
            .per
            .saturating_sub(used.reset)
            .as_nanos()
            .checked_div(rate.each().as_nanos())
            .unwrap_or_default();
        Self {
            wait: used.wait,
            remaining: u32::try_from(left).unwrap_or(rate.count),
            reset: used.reset,
        }
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert("ratelimit-remaining", HeaderValue::from(self.remaining));
        headers.insert(
            "ratelimit-reset",
            HeaderValue::from(whole_seconds(self.reset)),
        );
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::rate_counter::RateCounterError;

    use super::*;

    fn meter() -> RateMeter {
        let rate = Rate {
            count: 3,
            per: Duration::from_secs(60),
        };
        RateMeter::new(rate, "--rate-limit", "other")
    }

    /// A counter of other processes; it fails while it has no answer.
    #[derive(Default)]
    struct FakeCounter(Mutex<Option<RateUse>>);

    #[async_trait::async_trait]
    impl RateCounter for FakeCounter {
        async fn count(&self, _key: &str, _rate: Rate) -> Result<RateUse, RateCounterError> {
            let used = *self.0.lock().unwrap();
            used.ok_or_else(|| RateCounterError("it does not answer".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_process_counts_for_itself_from_what_it_knows_while_the_shared_counter_fails() {
        let shared = Arc::new(FakeCounter::default());
        let limits = RateLimits::new(None, Some(meter().rate)).shared_by(shared.clone());
        let (meter, ann) = (limits.other.as_ref().unwrap(), Account::ANONYMOUS);
        *shared.0.lock().unwrap() = Some(RateUse {
            wait: None,
            reset: Duration::from_secs(40),
        });
        assert_eq!(limits.count(meter, &ann).await.remaining, 1);
        *shared.0.lock().unwrap() = None;
        assert_eq!(limits.count(meter, &ann).await.remaining, 0);
        let refused = limits.count(meter, &ann).await;
        assert_eq!(refused.wait, Some(Duration::from_secs(20)));
        let (wait, reset) = (Some(Duration::from_secs(7)), Duration::from_secs(47));
        *shared.0.lock().unwrap() = Some(RateUse { wait, reset });
        assert_eq!(
            limits.count(meter, &ann).await.wait,
            refused.wait,
            "it is not asked yet"
        );
        tokio::time::advance(SHARED_PAUSE).await;
        assert_eq!(limits.count(meter, &ann).await.wait, wait);
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

    #[test]
    fn requests_that_run_a_model_have_the_limit_of_creates_if_there_is_one() {
        let rate = Some(meter().rate);
        let flag = |limits: &RateLimits, method: Method, path| {
            limits.meter(&method, path).map(|meter| meter.flag)
        };
        let (both, other) = (RateLimits::new(rate, rate), RateLimits::new(None, rate));
        for path in [
            "/v1/chat/completions",
            "/client/v4/accounts/a/ai/run/m",
            "/ai/run/m",
            "/ai/v1/embeddings",
        ] {
            let create = Some("--rate-limit-create");
            assert_eq!(flag(&both, Method::POST, path), create, "{path}");
            assert_eq!(flag(&other, Method::POST, path), Some("--rate-limit"));
        }
        let list = "/client/v4/accounts/a/ai/models/search";
        assert_eq!(flag(&both, Method::GET, list), Some("--rate-limit"));
        assert_eq!(flag(&other, Method::POST, "/v1/predictions"), None);
    }
}
