//! The endpoints and the queue of one model: admits requests and serves waiters.
//!
//! A request takes a permit by compare-and-swap while the model has no waiters. Otherwise it is admitted
//! under the lock of the queue, after the waiters, so that no request overtakes one. Each release serves
//! the waiters in the thread that releases.
//!
//! No wakeup is lost: a request announces itself in `waiting` before it looks for a free permit for the
//! last time, and a release frees its permit before it reads `waiting`. Both orders are sequentially
//! consistent, so that one of the two sees the other.

mod full;
mod member;
mod serve;

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::Account;
use tidegate_core::ewma::Ewma;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use full::{Full, FullReason};
pub(crate) use member::GroupMember;
use serve::Served;

use crate::choose::{Candidate, Choice, ChoiceQuery, choose};
use crate::endpoint::{EndpointKey, ResolvedEndpoint, WaitingGroup};
use crate::fleet::{PriorityClass, QueueConfig};
use crate::health::HealthState;
use crate::permits::{DetachedPermit, EndpointPermit, RequestId, SlotLease};
use crate::queue::{
    PermitWaiter, QueuePlace, Refused, WaitEntry, WaitQueue, WaitingMemory, capacity,
};
use crate::statistics::{GroupCounters, ModelStatistics};

/// A request for a permit.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The account of the client.
    pub account: Account,
    /// The class in the queue.
    pub priority: PriorityClass,
    /// The hash of the session or of the beginning of the prompt: equal requests prefer the same endpoint.
    pub affinity: Option<u64>,
    /// The size of the body that is kept while the request waits.
    pub body_bytes: usize,
    /// The endpoints that have been tried already.
    pub excluded: Vec<EndpointKey>,
    /// Whether endpoints of other sites are left out.
    pub local_only: bool,
}

impl Ask {
    /// The first attempt of a request without a body, of this account.
    pub fn new(account: Account) -> Self {
        Self {
            account,
            priority: PriorityClass::default(),
            affinity: None,
            body_bytes: 0,
            excluded: Vec::new(),
            local_only: false,
        }
    }
}

/// The answer to a request for a permit. It never takes time.
#[derive(Debug)]
pub enum AdmitOutcome {
    /// The request may be sent.
    Leased(EndpointPermit),
    /// All endpoints are full: the request waits.
    Queued(PermitWaiter),
    /// The request is refused.
    Full(Full),
}

/// One model: its endpoints and its queue. It stays the same when the configuration is reloaded.
pub struct EndpointGroup {
    model: Arc<str>,
    members: ArcSwap<Vec<Arc<GroupMember>>>,
    /// The number of waiters, and of requests that are about to wait. Changed under the lock of `state`.
    waiting: Arc<AtomicUsize>,
    state: Mutex<QueueState>,
    memory: Arc<WaitingMemory>,
    turn: AtomicU64,
    /// How long requests hold their permits.
    service_time: Ewma,
    counters: GroupCounters,
}

struct QueueState {
    queue: WaitQueue,
    config: QueueConfig,
}

/// Why a request gets no permit now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    AllFull,
    NoEndpoint,
}

thread_local! {
    /// The candidates of the request that is being admitted, so that a request allocates none.
    static CANDIDATES: RefCell<Vec<Candidate>> = const { RefCell::new(Vec::new()) };
}

impl EndpointGroup {
    pub(crate) fn new(model: &str, config: QueueConfig, memory: Arc<WaitingMemory>) -> Self {
        Self {
            model: model.into(),
            members: ArcSwap::default(),
            waiting: Arc::default(),
            state: Mutex::new(QueueState {
                queue: WaitQueue::new(config.algorithm),
                config,
            }),
            memory,
            turn: AtomicU64::new(0),
            service_time: Ewma::default(),
            counters: GroupCounters::default(),
        }
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The endpoints of this model.
    pub fn endpoints(&self) -> Vec<EndpointKey> {
        let members = self.members.load();
        members.iter().map(|m| m.live().key().clone()).collect()
    }

    /// The endpoints with their addresses and configuration.
    pub(crate) fn resolved(&self) -> Vec<ResolvedEndpoint> {
        let members = self.members.load();
        members.iter().map(|member| member.resolved()).collect()
    }

    /// The number of endpoints.
    pub fn len(&self) -> usize {
        self.members.load().len()
    }

    /// Whether the model has no endpoints.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of waiting requests.
    pub fn queue_len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The permits in use by requests of this model.
    pub fn used_permits(&self) -> usize {
        self.counters.used()
    }

    /// The permits of all endpoints of this model. Other models may use them too.
    pub fn total_permits(&self) -> u32 {
        let limit = |member: &Arc<GroupMember>| member.live().limit();
        self.members
            .load()
            .iter()
            .map(limit)
            .fold(0, u32::saturating_add)
    }

    /// Gives the request a permit, a place in the queue, or a refusal. Never waits.
    pub fn admit(self: &Arc<Self>, ask: Ask) -> AdmitOutcome {
        let outcome = if self.waiting.load(Ordering::SeqCst) == 0
            && let Ok(lease) = self.try_lease(&ask)
        {
            AdmitOutcome::Leased(EndpointPermit::new(lease, Duration::ZERO))
        } else {
            self.admit_in_order(ask)
        };
        self.counters
            .count_ask(matches!(outcome, AdmitOutcome::Full(_)));
        outcome
    }

    /// Admits a request after the waiters.
    fn admit_in_order(self: &Arc<Self>, ask: Ask) -> AdmitOutcome {
        // Dropped after the lock is released: see `Served`.
        let mut served = Served::default();
        let mut state = self.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.serve(&mut state, &mut served);
        let outcome = match self.try_lease(&ask) {
            Ok(lease) => AdmitOutcome::Leased(EndpointPermit::new(lease, Duration::ZERO)),
            Err(Blocked::NoEndpoint) => AdmitOutcome::Full(self.no_endpoint()),
            Err(Blocked::AllFull) => match self.enqueue(&mut state, ask) {
                Ok(waiter) => return AdmitOutcome::Queued(waiter),
                Err(full) => AdmitOutcome::Full(full),
            },
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Adds a waiter, which is counted in `waiting` already.
    fn enqueue(self: &Arc<Self>, state: &mut QueueState, ask: Ask) -> Result<PermitWaiter, Full> {
        let (account, class) = (ask.account.clone(), ask.priority);
        let ahead = |queue: &WaitQueue| queue.len_ahead(&account, class);
        let Some(memory) = self.memory.try_reserve(ask.body_bytes) else {
            return Err(self.full_behind(FullReason::Memory, ahead(&state.queue)));
        };
        let (reply, answer) = oneshot::channel();
        let entry = WaitEntry {
            number: state.queue.next_number(),
            ask,
            since: Instant::now(),
            reply,
            _memory: memory,
        };
        let place = QueuePlace::of(&entry);
        match state.queue.push(entry, self.capacity(&state.config)) {
            Ok(removed) => {
                if let Some(removed) = removed {
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                    let full = self.full_behind(FullReason::Cleared, state.queue.len());
                    removed.refuse(full);
                }
                let deadline = place.since + state.config.max_wait;
                Ok(PermitWaiter::new(self.clone(), place, answer, deadline))
            }
            Err(Refused(_entry)) => {
                Err(self.full_behind(FullReason::QueueFull, ahead(&state.queue)))
            }
        }
    }

    /// Takes a permit of the best endpoint.
    fn try_lease(self: &Arc<Self>, ask: &Ask) -> Result<SlotLease, Blocked> {
        let now = Instant::now();
        let members = self.members.load();
        let query = self.query(ask);
        CANDIDATES.with_borrow_mut(|candidates| {
            loop {
                fill(candidates, &members, ask, now);
                match choose(&query, candidates) {
                    Choice::NoEndpoint => return Err(Blocked::NoEndpoint),
                    Choice::Wait => return Err(Blocked::AllFull),
                    Choice::Lease(index) => {
                        let is_trial = candidates[index].state == HealthState::Trial;
                        if members[index].try_acquire(is_trial, now) {
                            let member = members[index].clone();
                            return Ok(SlotLease::new(self.clone(), member, now, is_trial));
                        }
                    }
                }
                // Another request took the permit: the counters have changed.
            }
        })
    }

    /// What a request would get now.
    fn choose_for(&self, ask: &Ask) -> Choice {
        let members = self.members.load();
        CANDIDATES.with_borrow_mut(|candidates| {
            fill(candidates, &members, ask, Instant::now());
            choose(&self.query(ask), candidates)
        })
    }

    fn query(&self, ask: &Ask) -> ChoiceQuery {
        ChoiceQuery {
            affinity: ask.affinity,
            local_only: ask.local_only,
            turn: self.turn.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The number of waiters that the queue may have.
    fn capacity(&self, config: &QueueConfig) -> usize {
        let members = self.members.load();
        let local = members.iter().filter(|member| member.is_local());
        let permits = local.map(|member| u64::from(member.live().limit())).sum();
        capacity(config, permits)
    }

    /// Holds a slot of an endpoint for a request that is known to run there since before a restart.
    /// `None` if the model has no such endpoint.
    pub fn adopt_detached(
        self: &Arc<Self>,
        endpoint: &EndpointKey,
        id: RequestId,
        deadline: Instant,
    ) -> Option<DetachedPermit> {
        let members = self.members.load();
        let member = members
            .iter()
            .find(|member| member.live().key() == endpoint)?;
        member.live().permits().acquire_beyond_limit();
        let lease = SlotLease::new(self.clone(), member.clone(), Instant::now(), false);
        Some(EndpointPermit::adopted(lease, id).detach_until(deadline))
    }

    /// What metrics and operators see.
    pub fn statistics(&self) -> ModelStatistics {
        let now = Instant::now();
        let members = self.members.load();
        let accounts = self.lock().queue.waiting_accounts();
        let endpoints = members.iter().map(|member| member.live().statistics(now));
        self.counters.statistics(ModelStatistics {
            model: self.model.clone(),
            total_permits: self.total_permits(),
            used_permits: self.used_permits(),
            queue_size: self.queue_len(),
            service_time: self.service_time.get(),
            waiting_accounts: accounts,
            endpoints: endpoints.collect(),
            ..ModelStatistics::default()
        })
    }

    /// Notes the current load, for the averages.
    pub(crate) fn sample(&self) {
        self.counters.sample(self.queue_len());
    }

    pub(crate) fn count_lease(&self) {
        self.counters.count_lease();
    }

    pub(crate) fn count_release(&self, held: Option<Duration>) {
        self.counters.count_release();
        if let Some(held) = held {
            self.service_time.record(held);
        }
    }

    pub(crate) fn handle(self: &Arc<Self>) -> WaitingGroup {
        WaitingGroup {
            group: Arc::downgrade(self),
            waiting: self.waiting.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fill(candidates: &mut Vec<Candidate>, members: &[Arc<GroupMember>], ask: &Ask, now: Instant) {
    candidates.clear();
    candidates.extend(members.iter().map(|member| member.candidate(ask, now)));
}

impl fmt::Debug for EndpointGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} waiting)", self.model, self.queue_len())
    }
}
