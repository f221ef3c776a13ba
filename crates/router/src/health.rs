//! The health of an endpoint, judged by the results of its requests.
//!
//! Only failures open the breaker: an endpoint that answers 4xx works, and one that answers 429 or 503 is
//! busy. A busy or silent endpoint is avoided for a time, but still tried if there is no other.
//!
//! ```mermaid
//! stateDiagram-v2
//!     Healthy --> BackingOff: backpressure, or no first byte
//!     BackingOff --> Healthy: success, or the time is over
//!     Healthy --> Open: failures in a row
//!     BackingOff --> Open: failures in a row
//!     Open --> Trial: the time is over, one request tries
//!     Trial --> Healthy: success
//!     Trial --> BackingOff: backpressure
//!     Trial --> Open: failure, for a longer time
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the breaker. See [`FailureKind::weight`].
const THRESHOLD: u32 = 6;
/// How long the breaker stays open for the first time; each failed trial doubles it.
const OPEN: Duration = Duration::from_secs(1);
const OPEN_MAX: Duration = Duration::from_secs(30);
/// How long an endpoint is avoided after backpressure that names no time; doubled if it goes on.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// The longest time that an endpoint can ask to be avoided.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long an endpoint is avoided after it was silent; doubled if it goes on.
const STALL: Duration = Duration::from_secs(10);
const STALL_MAX: Duration = Duration::from_secs(120);

/// The result of an attempt, as far as it says something about the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The endpoint works: 2xx, 3xx or 4xx.
    Success {
        /// From sending to the first byte of the response.
        latency: Duration,
    },
    /// The endpoint works and is busy: 429, 503, 529, or what its kind uses for that.
    Backpressure {
        /// How long it asks to be avoided.
        retry_after: Option<Duration>,
    },
    /// The endpoint does not work.
    Failure(FailureKind),
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection was established.
    Connect,
    /// The first byte did not arrive in time.
    FirstByteTimeout {
        /// The time that the endpoint had.
        budget: Duration,
    },
    /// The connection was closed before or in the response.
    Closed,
    /// The response stopped in the middle.
    IdleTimeout,
    /// A 5xx that is not backpressure.
    ServerError,
    /// The response is not valid HTTP, or not what its kind sends.
    InvalidResponse,
}

impl FailureKind {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::FirstByteTimeout { .. } => "first-byte-timeout",
            Self::Closed => "closed",
            Self::IdleTimeout => "idle-timeout",
            Self::ServerError => "server-error",
            Self::InvalidResponse => "invalid-response",
        }
    }

    /// How much it counts. A 5xx can be the fault of the request, so it counts half.
    const fn weight(self) -> u32 {
        match self {
            Self::Connect | Self::FirstByteTimeout { .. } | Self::Closed => 2,
            Self::IdleTimeout | Self::ServerError | Self::InvalidResponse => 1,
        }
    }
}

/// Whether new requests may use an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// It is used.
    Healthy,
    /// It was busy or silent and is used only if there is no healthy endpoint.
    BackingOff {
        /// When it is used again.
        until: Instant,
    },
    /// Its breaker is open: it is not used.
    Open {
        /// When a request may try it.
        until: Instant,
    },
    /// Its breaker was open for long enough: one request may try it.
    Trial,
    /// One request tries it; others wait for the result.
    TrialRunning,
    /// Its probe failed.
    Unhealthy,
    /// It takes no new requests.
    Draining,
}

impl HealthState {
    /// The name in metrics and in the view of operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::BackingOff { .. } => "backing-off",
            Self::Open { .. } => "open",
            Self::Trial | Self::TrialRunning => "half-open",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
        }
    }

    /// Whether requests may use it now or as soon as others end.
    pub const fn is_usable(self) -> bool {
        match self {
            Self::Healthy | Self::BackingOff { .. } | Self::Trial | Self::TrialRunning => true,
            Self::Open { .. } | Self::Unhealthy | Self::Draining => false,
        }
    }
}

/// The health of one endpoint. The state is published in one atomic, so that requests read it without a
/// lock; a success of an endpoint without failures takes no lock either.
pub(crate) struct HealthMonitor {
    /// The phase in the low bits, and above them the microseconds from `created` to its end.
    published: AtomicU64,
    breaker: Mutex<Breaker>,
    created: Instant,
    backoffs: AtomicU64,
    failures: AtomicU64,
}

const PHASE_BITS: u32 = 3;
/// Healthy, without failures.
const CLEAN: u64 = 0;
/// Healthy, after failures that the next success forgets.
const SUSPECT: u64 = 1;
const BACKING_OFF: u64 = 2;
const OPENED: u64 = 3;
const TRYING: u64 = 4;

impl HealthMonitor {
    pub(crate) fn new(created: Instant) -> Self {
        Self {
            published: AtomicU64::new(CLEAN),
            breaker: Mutex::default(),
            created,
            backoffs: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// The state, from the breaker alone.
    pub(crate) fn state(&self, now: Instant) -> HealthState {
        let published = self.published.load(Ordering::SeqCst);
        let until = || self.created + Duration::from_micros(published >> PHASE_BITS);
        match published & ((1 << PHASE_BITS) - 1) {
            BACKING_OFF if now < until() => HealthState::BackingOff { until: until() },
            OPENED if now < until() => HealthState::Open { until: until() },
            OPENED => HealthState::Trial,
            TRYING => HealthState::TrialRunning,
            _ => HealthState::Healthy,
        }
    }

    /// When the state changes by itself.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        match self.lock().phase {
            BreakerPhase::BackingOff { until } | BreakerPhase::Open { until } => Some(until),
            BreakerPhase::Closed | BreakerPhase::Trial => None,
        }
    }

    /// How often the endpoint was avoided for a time.
    pub(crate) fn backoffs(&self) -> u64 {
        self.backoffs.load(Ordering::Relaxed)
    }

    /// The number of failures.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    // The methods below return whether the phase has changed.

    pub(crate) fn succeed(&self) -> bool {
        self.published.load(Ordering::SeqCst) != CLEAN
            && self.update(|breaker| *breaker = Breaker::default())
    }

    pub(crate) fn back_off(&self, retry_after: Option<Duration>, now: Instant) -> bool {
        self.backoffs.fetch_add(1, Ordering::Relaxed);
        self.update(|breaker| breaker.back_off(retry_after, now))
    }

    pub(crate) fn stall(&self, now: Instant) -> bool {
        self.backoffs.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.update(|breaker| breaker.stall(now))
    }

    pub(crate) fn fail(&self, kind: FailureKind, now: Instant) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.update(|breaker| breaker.fail(kind.weight(), now))
    }

    pub(crate) fn claim_trial(&self, now: Instant) -> bool {
        self.update(|breaker| breaker.claim_trial(now))
    }

    pub(crate) fn end_trial(&self, now: Instant) -> bool {
        self.update(|breaker| {
            if breaker.phase == BreakerPhase::Trial {
                breaker.phase = BreakerPhase::Open { until: now };
            }
        })
    }

    /// Ends the time for which the breaker is open.
    pub(crate) fn allow_trial(&self, now: Instant) -> bool {
        self.published.load(Ordering::SeqCst) != CLEAN
            && self.update(|breaker| {
                if let BreakerPhase::Open { until } = &mut breaker.phase {
                    *until = now.min(*until);
                }
            })
    }

    fn update(&self, change: impl FnOnce(&mut Breaker)) -> bool {
        let mut breaker = self.lock();
        let before = breaker.phase;
        change(&mut breaker);
        self.published.store(self.word(&breaker), Ordering::SeqCst);
        breaker.phase != before
    }

    fn word(&self, breaker: &Breaker) -> u64 {
        let until = |until: Instant| {
            let since = until.saturating_duration_since(self.created);
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX >> PHASE_BITS) << PHASE_BITS
        };
        match breaker.phase {
            BreakerPhase::Closed if *breaker == Breaker::default() => CLEAN,
            BreakerPhase::Closed => SUSPECT,
            BreakerPhase::BackingOff { until: end } => BACKING_OFF | until(end),
            BreakerPhase::Open { until: end } => OPENED | until(end),
            BreakerPhase::Trial => TRYING,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the results so far say about an endpoint. A success forgets all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Breaker {
    phase: BreakerPhase,
    /// The weights of the failures in a row.
    failures: u32,
    /// How often the breaker was opened in a row.
    opened: u32,
    /// How often the endpoint was busy in a row.
    busy: u32,
    /// How often it was silent in a row.
    stalls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BreakerPhase {
    #[default]
    Closed,
    BackingOff {
        until: Instant,
    },
    Open {
        until: Instant,
    },
    Trial,
}

impl Breaker {
    fn back_off(&mut self, retry_after: Option<Duration>, now: Instant) {
        let pause = match retry_after {
            Some(asked) => asked.min(RETRY_AFTER_MAX),
            None => doubled(BACKOFF, self.busy, BACKOFF_MAX),
        };
        *self = Self {
            phase: self.backing_off_until(now + pause),
            busy: self.busy.saturating_add(1),
            stalls: self.stalls,
            failures: 0,
            opened: 0,
        };
    }

    fn stall(&mut self, now: Instant) {
        if matches!(
            self.phase,
            BreakerPhase::Closed | BreakerPhase::BackingOff { .. }
        ) {
            let pause = doubled(STALL, self.stalls, STALL_MAX);
            self.phase = self.backing_off_until(now + pause);
        }
        self.stalls = self.stalls.saturating_add(1);
        self.fail(2, now);
    }

    fn fail(&mut self, weight: u32, now: Instant) {
        match self.phase {
            BreakerPhase::Closed | BreakerPhase::BackingOff { .. } => {
                self.failures = self.failures.saturating_add(weight);
                if self.failures >= THRESHOLD {
                    self.open(now);
                }
            }
            BreakerPhase::Trial => self.open(now),
            // A request from before the breaker opened says nothing new.
            BreakerPhase::Open { .. } => {}
        }
    }

    fn open(&mut self, now: Instant) {
        let until = now + doubled(OPEN, self.opened, OPEN_MAX);
        self.opened = self.opened.saturating_add(1);
        self.phase = BreakerPhase::Open { until };
    }

    fn claim_trial(&mut self, now: Instant) {
        if let BreakerPhase::Open { until } = self.phase
            && until <= now
        {
            self.phase = BreakerPhase::Trial;
        }
    }

    /// An earlier, longer time stays in force.
    fn backing_off_until(&self, end: Instant) -> BreakerPhase {
        let until = match self.phase {
            BreakerPhase::BackingOff { until } => until.max(end),
            BreakerPhase::Closed | BreakerPhase::Open { .. } | BreakerPhase::Trial => end,
        };
        BreakerPhase::BackingOff { until }
    }
}

fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    base.saturating_mul(1 << times.min(16)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_until_open(monitor: &HealthMonitor, now: Instant) -> u32 {
        let mut failures = 0;
        while !matches!(monitor.state(now), HealthState::Open { .. }) {
            monitor.fail(FailureKind::Connect, now);
            failures += 1;
        }
        failures
    }

    #[test]
    fn only_failures_open_the_breaker() {
        let now = Instant::now();
        let monitor = HealthMonitor::new(now);
        for _ in 0..40 {
            monitor.succeed();
            assert_eq!(monitor.state(now), HealthState::Healthy);
        }
        for _ in 0..100 {
            monitor.back_off(None, now);
            assert!(matches!(monitor.state(now), HealthState::BackingOff { .. }));
        }
        monitor.succeed();
        assert_eq!(monitor.state(now), HealthState::Healthy);
        assert_eq!(fail_until_open(&monitor, now), 3);
        assert_eq!((monitor.backoffs(), monitor.failures()), (100, 3));
    }

    #[test]
    fn a_server_error_counts_half_and_a_success_forgets_it() {
        let now = Instant::now();
        let monitor = HealthMonitor::new(now);
        for _ in 0..5 {
            monitor.fail(FailureKind::ServerError, now);
        }
        assert_eq!(monitor.state(now), HealthState::Healthy);
        monitor.succeed();
        for _ in 0..5 {
            monitor.fail(FailureKind::ServerError, now);
        }
        assert_eq!(monitor.state(now), HealthState::Healthy);
        monitor.fail(FailureKind::ServerError, now);
        assert!(matches!(monitor.state(now), HealthState::Open { .. }));
    }

    #[test]
    fn a_single_trial_decides_over_an_open_breaker() {
        let start = Instant::now();
        let monitor = HealthMonitor::new(start);
        fail_until_open(&monitor, start);
        assert!(!monitor.claim_trial(start), "still open");

        let later = start + OPEN;
        assert_eq!(monitor.state(later), HealthState::Trial);
        assert!(monitor.claim_trial(later));
        assert!(!monitor.claim_trial(later), "one trial at a time");
        assert_eq!(monitor.state(later), HealthState::TrialRunning);

        monitor.fail(FailureKind::Closed, later);
        assert_eq!(
            monitor.state(later),
            HealthState::Open {
                until: later + OPEN * 2
            }
        );
        let latest = later + OPEN * 2;
        assert!(monitor.claim_trial(latest));
        monitor.succeed();
        assert_eq!(monitor.state(latest), HealthState::Healthy);
    }

    #[test]
    fn a_trial_without_a_verdict_lets_the_next_request_try() {
        let now = Instant::now();
        let monitor = HealthMonitor::new(now);
        fail_until_open(&monitor, now);
        let later = now + OPEN;
        assert!(monitor.claim_trial(later));
        assert!(monitor.end_trial(later));
        assert_eq!(monitor.state(later), HealthState::Trial);
        assert!(monitor.claim_trial(later));
        monitor.back_off(None, later);
        assert!(!monitor.end_trial(later), "the verdict stands");
        assert!(matches!(
            monitor.state(later),
            HealthState::BackingOff { .. }
        ));
    }

    #[test]
    fn an_endpoint_is_avoided_for_the_time_that_it_asks_for() {
        let now = Instant::now();
        let monitor = HealthMonitor::new(now);
        monitor.back_off(Some(Duration::from_secs(7)), now);
        monitor.back_off(Some(Duration::from_secs(2)), now);
        let until = now + Duration::from_secs(7);
        assert_eq!(monitor.state(now), HealthState::BackingOff { until });
        assert_eq!(monitor.next_change(), Some(until));
        assert_eq!(monitor.state(until), HealthState::Healthy);
    }

    #[test]
    fn a_silent_endpoint_is_avoided_for_longer_each_time() {
        let now = Instant::now();
        let monitor = HealthMonitor::new(now);
        monitor.stall(now);
        assert_eq!(monitor.next_change(), Some(now + STALL));
        let later = now + STALL;
        monitor.stall(later);
        assert_eq!(monitor.next_change(), Some(later + STALL * 2));
    }
}
