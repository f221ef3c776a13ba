//! The limits of accounts: requests at once and requests in a period.
//!
//! They are independent of the queues: a request over a limit of its account is refused before it asks for
//! a permit. The counters live outside the configuration, so that a reload does not forget them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::Account;
use tidegate_core::ewma::Ewma;
use tidegate_core::rate_counter::{Rate, RateUse};
use tokio::time::Instant;

use crate::fleet::{AccountConfig, PriorityClass};

/// The limits of all accounts and their use.
#[derive(Default)]
pub struct AccountLimits(ArcSwap<HashMap<Account, LimitedAccount>>);

struct LimitedAccount {
    max_concurrent: Option<u32>,
    rate: Option<Rate>,
    priority: PriorityClass,
    meter: Arc<AccountMeter>,
}

/// What an account uses.
#[derive(Default)]
struct AccountMeter {
    active: AtomicU32,
    /// The time until which the requests so far have used up the rate.
    used_until: Mutex<Option<Instant>>,
    /// How long a request of the account takes.
    duration: Ewma,
}

/// A request of an account, counted until it is dropped.
#[must_use = "dropping the guard ends the request"]
#[derive(Default)]
pub struct AccountGuard {
    /// `None` for an account without configuration.
    _active: Option<ActiveRequest>,
}

struct ActiveRequest {
    meter: Arc<AccountMeter>,
    since: Instant,
}

/// A request is over a limit of its account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("account `{account}` is over its limit of {limit}; retry after {} s", retry_after.as_secs_f64().ceil())]
pub struct OverLimit {
    /// The account.
    pub account: Account,
    /// The limit.
    pub limit: AccountLimit,
    /// When the next request is likely to be within the limit.
    pub retry_after: Duration,
}

/// A limit of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccountLimit {
    /// The setting `max_concurrent`.
    #[error("{0} requests at once (`max_concurrent`)")]
    Concurrent(u32),
    /// The setting `rate`.
    #[error("{} requests in {:?} (`rate`)", .0.count, .0.per)]
    Rate(Rate),
}

impl AccountLimits {
    /// Applies the accounts of a configuration. What they use now stays counted.
    pub fn apply(&self, accounts: &[AccountConfig]) {
        let before = self.0.load();
        let limited = |config: &AccountConfig| {
            let known = before.get(&config.account);
            let limited = LimitedAccount {
                max_concurrent: config.max_concurrent,
                rate: config.rate,
                priority: config.priority,
                meter: known.map_or_else(Arc::default, |known| known.meter.clone()),
            };
            (config.account.clone(), limited)
        };
        self.0
            .store(Arc::new(accounts.iter().map(limited).collect()));
    }

    /// Counts a request until the guard is dropped, unless it is over a limit.
    pub fn enter(&self, account: &Account) -> Result<AccountGuard, OverLimit> {
        let accounts = self.0.load();
        let Some(limited) = accounts.get(account) else {
            return Ok(AccountGuard { _active: None });
        };
        let over = |limit, retry_after| OverLimit {
            account: account.clone(),
            limit,
            retry_after,
        };
        let guard = limited
            .try_activate()
            .map_err(|(max, wait)| over(AccountLimit::Concurrent(max), wait))?;
        if let Some(rate) = limited.rate
            && let Some(wait) = limited.meter.count(rate, Instant::now())
        {
            return Err(over(AccountLimit::Rate(rate), wait));
        }
        Ok(guard)
    }

    /// The class of the requests of an account.
    pub fn priority(&self, account: &Account) -> PriorityClass {
        let accounts = self.0.load();
        accounts
            .get(account)
            .map_or_else(PriorityClass::default, |limited| limited.priority)
    }

    /// The number of requests of the account that run or wait. Accounts without configuration are not
    /// counted.
    pub fn active(&self, account: &Account) -> u32 {
        let accounts = self.0.load();
        let active = |limited: &LimitedAccount| limited.meter.active.load(Ordering::Relaxed);
        accounts.get(account).map_or(0, active)
    }
}

impl LimitedAccount {
    /// Counts an active request; otherwise returns the limit and the time to wait.
    fn try_activate(&self) -> Result<AccountGuard, (u32, Duration)> {
        let max = self.max_concurrent.unwrap_or(u32::MAX);
        let add = |active| (active < max).then_some(active + 1);
        let active = &self.meter.active;
        if active
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_err()
        {
            let duration = self.meter.duration.get().unwrap_or_default();
            return Err((max, (duration / max.max(1)).max(Duration::from_secs(1))));
        }
        let active = ActiveRequest {
            meter: self.meter.clone(),
            since: Instant::now(),
        };
        Ok(AccountGuard {
            _active: Some(active),
        })
    }
}

impl AccountMeter {
    /// Counts a request, or returns how long to wait for the next one.
    fn count(&self, rate: Rate, now: Instant) -> Option<Duration> {
        let mut used_until = self
            .used_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let used = used_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let after = RateUse::after(rate, used);
        *used_until = Some(now + after.reset);
        after.wait
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.meter.active.fetch_sub(1, Ordering::Relaxed);
        self.meter.duration.record(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, max_concurrent: Option<u32>, per_minute: Option<u32>) -> AccountConfig {
        AccountConfig {
            account: Account::parse(name).unwrap(),
            token_hash: String::new(),
            max_concurrent,
            rate: per_minute.map(|count| Rate {
                count,
                per: Duration::from_secs(60),
            }),
            priority: PriorityClass::High,
            admin: false,
        }
    }

    fn account(name: &str) -> Account {
        Account::parse(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_over_its_rate_is_refused_and_others_are_not() {
        let limits = AccountLimits::default();
        limits.apply(&[config("a", None, Some(2)), config("b", None, Some(2))]);
        drop(limits.enter(&account("a")).expect("the first"));
        drop(limits.enter(&account("a")).expect("the second"));
        let over = limits.enter(&account("a")).err().expect("over the rate");
        assert_eq!(over.retry_after, Duration::from_secs(30));
        assert_eq!(
            over.to_string(),
            "account `a` is over its limit of 2 requests in 60s (`rate`); retry after 30 s"
        );
        drop(limits.enter(&account("b")).expect("another account"));
        drop(limits.enter(&account("c")).expect("an unlimited account"));

        tokio::time::advance(over.retry_after).await;
        drop(limits.enter(&account("a")).expect("after the wait"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_a_limited_number_of_requests_at_once() {
        let limits = AccountLimits::default();
        limits.apply(&[config("a", Some(2), None)]);
        let first = limits.enter(&account("a")).expect("the first");
        let _second = limits.enter(&account("a")).expect("the second");
        let over = limits.enter(&account("a")).err().expect("the third");
        assert_eq!(over.limit, AccountLimit::Concurrent(2));
        assert!(over.to_string().contains("2 requests at once"), "{over}");
        drop(first);
        assert_eq!(limits.active(&account("a")), 1);
        let _third = limits.enter(&account("a")).expect("one has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_keeps_what_accounts_use() {
        let limits = AccountLimits::default();
        limits.apply(&[config("a", Some(1), None)]);
        let guard = limits.enter(&account("a")).expect("the first");
        limits.apply(&[config("a", Some(1), Some(1))]);
        assert!(limits.enter(&account("a")).is_err());
        drop(guard);
        drop(limits.enter(&account("a")).expect("the first of the rate"));
        limits.apply(&[config("a", Some(5), Some(1))]);
        assert!(limits.enter(&account("a")).is_err());
        assert_eq!(limits.priority(&account("a")), PriorityClass::High);
        assert_eq!(limits.priority(&account("b")), PriorityClass::Normal);
    }
}
