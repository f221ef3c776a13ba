//! Permits: the right of one request to use an endpoint.
//!
//! The counters live in the endpoint, outside the configuration, and are shared by all models that use it.
//! A permit gives itself back when it is dropped, and a waiter of the models of the endpoint gets it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_net::upstream::UpstreamAddress;
use tokio::time::Instant;

use crate::endpoint::{EndpointKey, LiveEndpoint};
use crate::fleet::{BackendUrl, EndpointConfig};
use crate::group::{EndpointGroup, GroupMember};
use crate::health::Verdict;

/// How many permits of an endpoint are in use, and how many there are: one atomic, so that no request ever
/// sees one without the other.
pub(crate) struct PermitCounter(AtomicU64);

const USED: u64 = u32::MAX as u64;
const LIMIT_SHIFT: u32 = 32;

impl PermitCounter {
    pub(crate) fn new(limit: u32) -> Self {
        Self(AtomicU64::new(u64::from(limit) << LIMIT_SHIFT))
    }

    pub(crate) fn used(&self) -> u32 {
        u32::try_from(self.load() & USED).unwrap_or(u32::MAX)
    }

    pub(crate) fn limit(&self) -> u32 {
        u32::try_from(self.load() >> LIMIT_SHIFT).unwrap_or(u32::MAX)
    }

    /// Takes a permit if one is free. Never waits.
    pub(crate) fn try_acquire(&self) -> bool {
        self.update(|word| (word & USED < word >> LIMIT_SHIFT).then_some(word + 1))
    }

    /// Takes a permit even if none is free: for a request that is known to run already.
    pub(crate) fn acquire_beyond_limit(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn release(&self) {
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before & USED > 0, "a permit is given back once");
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.update(|word| Some(u64::from(limit) << LIMIT_SHIFT | word & USED));
    }

    fn load(&self) -> u64 {
        // Sequentially consistent with the number of waiters: see `EndpointGroup::admit`.
        self.0.load(Ordering::SeqCst)
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
            .is_ok()
    }
}

/// The identity of an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u128);

impl RequestId {
    /// The bits that are equal in all ids of a process.
    const PROCESS_BITS: u128 = (u32::MAX as u128) << 96;

    pub(crate) fn random() -> Self {
        let random = tidegate_core::random::bits();
        Self(Self::of_process() | (random & !Self::PROCESS_BITS))
    }

    fn of_process() -> u128 {
        static BITS: OnceLock<u128> = OnceLock::new();
        *BITS.get_or_init(|| tidegate_core::random::bits() & Self::PROCESS_BITS)
    }

    /// Whether this process has chosen the id.
    pub(crate) fn is_of_this_process(self) -> bool {
        self.0 & Self::PROCESS_BITS == Self::of_process()
    }

    /// Parses the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| valid)?;
        Some(Self(bits))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The right to send one request to an endpoint.
#[must_use = "dropping a permit gives it back"]
pub struct EndpointPermit {
    id: RequestId,
    waited: Duration,
    lease: SlotLease,
}

impl EndpointPermit {
    pub(crate) fn new(lease: SlotLease, waited: Duration) -> Self {
        Self {
            id: RequestId::random(),
            waited,
            lease,
        }
    }

    /// The permit of a request that runs already.
    pub(crate) fn adopted(lease: SlotLease, id: RequestId) -> Self {
        Self {
            id,
            waited: Duration::ZERO,
            lease,
        }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<LiveEndpoint> {
        self.lease.member.live()
    }

    /// The address of the endpoint.
    pub fn url(&self) -> &BackendUrl {
        self.lease.member.url()
    }

    /// Where the connection pool finds the endpoint.
    pub fn address(&self) -> &UpstreamAddress {
        self.lease.member.address()
    }

    /// What the configuration says about the endpoint for this model.
    pub fn config(&self) -> &Arc<EndpointConfig> {
        self.lease.member.config()
    }

    /// Whether the endpoint stands at the site of this router.
    pub fn is_local(&self) -> bool {
        self.lease.member.is_local()
    }

    /// The identity of the request.
    pub fn request_id(&self) -> RequestId {
        self.id
    }

    /// How long the request waited in the queue.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Applies the result of the attempt to the endpoint.
    pub fn record(&self, verdict: Verdict) {
        self.endpoint().record(verdict);
    }

    /// Counts the time of the permit in the service time of the model, from which `Retry-After` is computed:
    /// the backend has done what it was asked for. A failure, a refusal of bad input and a client that leaves
    /// at once say nothing about that time.
    pub fn count_service_time(&self) {
        self.lease.is_served.store(true, Ordering::Relaxed);
    }

    /// Keeps the permit in use after the response, until it is released by its id or its timeout has
    /// passed.
    pub fn detach(self) -> DetachedPermit {
        let timeout = self.config().detach_timeout;
        self.detach_until(Instant::now() + timeout)
    }

    pub(crate) fn detach_until(self, deadline: Instant) -> DetachedPermit {
        let Self { id, lease, .. } = self;
        let endpoint = lease.member.live().clone();
        endpoint.detached().hold(id, lease, deadline);
        endpoint.timers().notify_one();
        DetachedPermit {
            id,
            endpoint,
            deadline,
        }
    }
}

impl fmt::Debug for EndpointPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permit {} of {}", self.id, self.endpoint().key())
    }
}

/// A permit that outlives the response of its request. Dropping it has no effect: the endpoint holds the
/// permit until an event names it or its deadline passes.
#[derive(Debug, Clone)]
pub struct DetachedPermit {
    id: RequestId,
    endpoint: Arc<LiveEndpoint>,
    deadline: Instant,
}

impl DetachedPermit {
    /// The identity of the request.
    pub fn request_id(&self) -> RequestId {
        self.id
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &EndpointKey {
        self.endpoint.key()
    }

    /// When the permit is given back without an event.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Gives the permit back. `false` if that was done before.
    pub fn release(&self) -> bool {
        self.endpoint.release_detached(self.id)
    }
}

/// A slot of an endpoint that is in use. Dropping it serves waiters, so no lock of a queue may be held
/// then.
pub(crate) struct SlotLease {
    member: Arc<GroupMember>,
    group: Arc<EndpointGroup>,
    since: Instant,
    /// Whether this is the single request that tries an endpoint whose breaker is open.
    is_trial: bool,
    /// Whether its time counts in the service time of the model.
    is_served: AtomicBool,
}

impl SlotLease {
    /// Takes over a slot that was acquired from the counter of the member.
    pub(crate) fn new(
        group: Arc<EndpointGroup>,
        member: Arc<GroupMember>,
        since: Instant,
        is_trial: bool,
    ) -> Self {
        group.count_lease();
        Self {
            member,
            group,
            since,
            is_trial,
            is_served: AtomicBool::new(false),
        }
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        let is_served = self.is_served.load(Ordering::Relaxed);
        self.group
            .count_release(is_served.then(|| self.since.elapsed()));
        if self.is_trial {
            self.member.live().end_trial();
        }
        self.member.live().release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_never_exceeds_its_limit() {
        let counter = PermitCounter::new(2);
        assert!(counter.try_acquire() && counter.try_acquire());
        assert!(!counter.try_acquire());
        counter.set_limit(3);
        assert!(counter.try_acquire());
        counter.set_limit(1);
        assert_eq!((counter.used(), counter.limit()), (3, 1));
        counter.release();
        counter.release();
        assert!(!counter.try_acquire());
        counter.release();
        assert!(counter.try_acquire());
    }

    #[test]
    fn request_ids_are_printed_and_parsed() {
        let id = RequestId::random();
        assert_eq!(RequestId::parse(&id.to_string()), Some(id));
        assert!(id.is_of_this_process() && id != RequestId::random());
        assert!(!RequestId(!id.0).is_of_this_process());
        for text in ["", "+f", &"g".repeat(32), &"+".repeat(32), &"0".repeat(33)] {
            assert_eq!(RequestId::parse(text), None, "{text}");
        }
    }
}
