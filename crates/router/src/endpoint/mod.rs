//! The live state of one backend: its permits, health and latency.
//!
//! It lives outside the configuration, so that a reload neither forgets running requests nor the health
//! of a backend. All models that use the backend share it.

mod detached;
mod key;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::ewma::Ewma;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use detached::DetachedPermits;
pub use key::{EndpointKey, ResolvedEndpoint};

use crate::group::EndpointGroup;
use crate::health::{FailureKind, HealthMonitor, HealthState, Verdict};
use crate::permits::{PermitCounter, RequestId};
use crate::statistics::EndpointStatistics;

/// The time in which a latency without new samples loses half its value, so that a slow endpoint is tried
/// again.
const LATENCY_HALF_LIFE: Duration = Duration::from_secs(2);
/// After this time without samples the average begins anew: it says nothing about the present.
const LATENCY_FORGOTTEN: Duration = Duration::from_secs(5);

/// One backend.
pub struct LiveEndpoint {
    key: EndpointKey,
    hash: u64,
    permits: PermitCounter,
    health: HealthMonitor,
    draining: AtomicBool,
    /// Whether the last probe failed.
    probe_failed: AtomicBool,
    latency: Ewma,
    /// Microseconds from `created` to the last success.
    last_success: AtomicU64,
    /// The number of requests that wait in the backend itself, as its probe says.
    reported_queue: AtomicU32,
    detached: DetachedPermits,
    /// The models that use this endpoint.
    groups: ArcSwap<Vec<WaitingGroup>>,
    /// The position in `groups` of the model that gets the next released permit.
    next_group: AtomicUsize,
    created: Instant,
    /// Notified when a time at which the state changes by itself is new.
    timers: Arc<Notify>,
}

/// A model that uses an endpoint.
#[derive(Clone)]
pub(crate) struct WaitingGroup {
    pub(crate) group: Weak<EndpointGroup>,
    /// The number of its waiters, readable without upgrading.
    pub(crate) waiting: Arc<AtomicUsize>,
}

impl fmt::Debug for LiveEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}/{})", self.key, self.used(), self.limit())
    }
}

impl LiveEndpoint {
    pub(crate) fn new(key: EndpointKey, limit: u32, timers: Arc<Notify>) -> Self {
        let created = Instant::now();
        Self {
            hash: key.stable_hash(),
            key,
            permits: PermitCounter::new(limit),
            health: HealthMonitor::new(created),
            draining: AtomicBool::new(false),
            probe_failed: AtomicBool::new(false),
            latency: Ewma::default(),
            last_success: AtomicU64::new(0),
            reported_queue: AtomicU32::new(0),
            detached: DetachedPermits::default(),
            groups: ArcSwap::default(),
            next_group: AtomicUsize::new(0),
            created,
            timers,
        }
    }

    /// The identity.
    pub fn key(&self) -> &EndpointKey {
        &self.key
    }

    /// The most requests that it runs at once.
    pub fn limit(&self) -> u32 {
        self.permits.limit()
    }

    /// The permits in use, detached ones included.
    pub fn used(&self) -> u32 {
        self.permits.used()
    }

    /// Changes the limit. A higher one starts waiting requests at once; a lower one takes effect as
    /// running requests end.
    pub fn set_limit(&self, limit: u32) {
        self.permits.set_limit(limit);
        self.wake_groups();
    }

    /// Takes the endpoint out of use for new requests, or back. Running requests are not affected.
    pub fn set_draining(&self, draining: bool) {
        if self.draining.swap(draining, Ordering::SeqCst) != draining {
            self.health_changed();
        }
    }

    /// Whether the endpoint takes no new requests.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Applies the result of an active probe. A failed probe takes the endpoint out of use until one
    /// succeeds; a successful probe lets an open breaker try a request at once.
    pub fn record_probe(&self, healthy: bool) {
        let was_healthy = !self.probe_failed.swap(!healthy, Ordering::SeqCst);
        let trial_allowed = healthy && self.health.allow_trial(Instant::now());
        if was_healthy != healthy || trial_allowed {
            self.health_changed();
        }
    }

    /// Sets the number of requests that wait in the backend itself.
    pub fn set_reported_queue(&self, waiting: u32) {
        self.reported_queue.store(waiting, Ordering::Relaxed);
    }

    /// Applies the result of an attempt.
    pub fn record(&self, verdict: Verdict) {
        let now = Instant::now();
        let changed = match verdict {
            Verdict::Success { latency } => {
                if self.was_silent_for(LATENCY_FORGOTTEN, now) {
                    self.latency.reset();
                }
                self.latency.record(latency);
                self.last_success
                    .store(self.micros(now).max(1), Ordering::Relaxed);
                self.health.succeed()
            }
            Verdict::Backpressure { retry_after } => self.health.back_off(retry_after, now),
            Verdict::Failure(FailureKind::FirstByteTimeout { budget })
                if self.was_silent_for(budget, now) =>
            {
                self.latency.reset();
                self.health.stall(now)
            }
            Verdict::Failure(kind) => self.health.fail(kind, now),
        };
        if changed {
            self.health_changed();
        }
    }

    /// Whether a new request may use the endpoint, apart from its permits.
    pub fn state(&self, now: Instant) -> HealthState {
        if self.is_draining() {
            HealthState::Draining
        } else if self.probe_failed.load(Ordering::SeqCst) {
            HealthState::Unhealthy
        } else {
            self.health.state(now)
        }
    }

    /// The average time to the first byte. It decays while there are no samples.
    pub fn latency(&self, now: Instant) -> Option<Duration> {
        let average = self.latency.get()?;
        let age = self
            .micros(now)
            .saturating_sub(self.last_success.load(Ordering::Relaxed));
        if age < 1_000_000 {
            return Some(average);
        }
        let half_lives = Duration::from_micros(age).as_secs_f64() / LATENCY_HALF_LIFE.as_secs_f64();
        Some(average.mul_f64((-half_lives).exp2()))
    }

    /// Gives back the detached permit of this request. `false` if it has none, for instance because it
    /// was given back already.
    pub fn release_detached(&self, id: RequestId) -> bool {
        self.detached.release(id)
    }

    /// Gives back the detached permits of all requests for which `keep` returns `false`; returns their
    /// number.
    pub fn retain_detached(&self, keep: impl Fn(RequestId) -> bool) -> usize {
        self.detached.retain(keep)
    }

    /// The requests that hold detached permits.
    pub fn detached_ids(&self) -> Vec<RequestId> {
        self.detached.ids()
    }

    /// What metrics and operators see.
    pub fn statistics(&self, now: Instant) -> EndpointStatistics {
        EndpointStatistics {
            key: self.key.clone(),
            used: self.used(),
            limit: self.limit(),
            detached: self.detached.len(),
            state: self.state(now),
            latency: self.latency(now),
            backoffs: self.health.backoffs(),
            failures: self.health.failures(),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn reported_queue(&self) -> u32 {
        self.reported_queue.load(Ordering::Relaxed)
    }

    pub(crate) fn permits(&self) -> &PermitCounter {
        &self.permits
    }

    pub(crate) fn detached(&self) -> &DetachedPermits {
        &self.detached
    }

    pub(crate) fn set_groups(&self, groups: Vec<WaitingGroup>) {
        self.groups.store(Arc::new(groups));
    }

    /// The single request that may try an endpoint whose breaker is open; `false` if another one does.
    pub(crate) fn claim_trial(&self, now: Instant) -> bool {
        self.health.claim_trial(now)
    }

    /// The trial request has ended. Without a verdict, the next request may try.
    pub(crate) fn end_trial(&self) {
        if self.health.end_trial(Instant::now()) {
            self.health_changed();
        }
    }

    /// Gives back a permit and hands it to a waiter.
    pub(crate) fn release(&self) {
        self.permits.release();
        self.wake_groups();
    }

    /// Lets the models of this endpoint serve their waiters, in turn.
    fn wake_groups(&self) {
        let groups = self.groups.load();
        let first = self.next_group.load(Ordering::Relaxed);
        for index in (0..groups.len()).map(|offset| (first + offset) % groups.len()) {
            let WaitingGroup { group, waiting } = &groups[index];
            if waiting.load(Ordering::SeqCst) == 0 {
                continue;
            }
            if group.upgrade().is_some_and(|group| group.serve_waiters()) {
                self.next_group.store(index + 1, Ordering::Relaxed);
            }
        }
    }

    /// Lets the models of this endpoint serve or refuse their waiters, and sets the timer for the next
    /// change.
    pub(crate) fn health_changed(&self) {
        for WaitingGroup { group, waiting } in self.groups.load().iter() {
            if waiting.load(Ordering::SeqCst) > 0
                && let Some(group) = group.upgrade()
            {
                group.reconsider_waiters();
            }
        }
        self.timers.notify_one();
    }

    pub(crate) fn timers(&self) -> &Notify {
        &self.timers
    }

    /// Gives back the detached permits that have expired, and serves waiters if the state has changed by
    /// itself since `last`. Returns the next time at which this has an effect.
    pub(crate) fn fire_timers(&self, last: Instant, now: Instant) -> Option<Instant> {
        let expired = self.detached.expire(now);
        if expired > 0 {
            tracing::warn!(endpoint = %self.key, expired, "detached permits expired without an event");
        }
        let change = self.health.next_change();
        if change.is_some_and(|change| last < change && change <= now) {
            for WaitingGroup { group, waiting } in self.groups.load().iter() {
                if waiting.load(Ordering::SeqCst) > 0
                    && let Some(group) = group.upgrade()
                {
                    group.reconsider_waiters();
                }
            }
        }
        let change = change.filter(|change| *change > now);
        [change, self.detached.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether no request has succeeded within this time. A request can exceed its budget because it is
    /// large; an endpoint that answers other requests meanwhile is not silent.
    fn was_silent_for(&self, budget: Duration, now: Instant) -> bool {
        let last = self.last_success.load(Ordering::Relaxed);
        let silent = Duration::from_micros(self.micros(now).saturating_sub(last));
        last == 0 || silent >= budget
    }

    fn micros(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.created);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
