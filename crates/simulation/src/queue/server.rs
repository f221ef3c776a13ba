//! The server: the scripts of `crates/queue/src/redis/scripts`, each as one function.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::leases::JobRef;
use tidegate_core::queue::{DeadLetter, PutBackResult, QueueEntry, QueueName};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;

use super::shard::{Delivery, MessageId, RETURNED, Shard};
use crate::clock::SimulatedClock;
use crate::planted_bug::PlantedBug;

/// The number of shards of a queue.
const SHARDS: usize = 8;
/// How many of them an account uses.
const ACCOUNT_SHARDS: usize = 3;

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MessagePlace {
    pub(super) queue: QueueName,
    pub(super) shard: usize,
    pub(super) id: MessageId,
}

/// A message that was delivered.
pub(super) struct DeliveredEntry {
    pub(super) place: MessagePlace,
    pub(super) entry: QueueEntry,
    pub(super) deliveries: u32,
}

/// The server of the queues.
pub struct QueueServer {
    pub(super) clock: SimulatedClock,
    pub(super) planted: Option<PlantedBug>,
    state: Mutex<QueueState>,
}

#[derive(Default)]
pub(super) struct QueueState {
    pub(super) queues: BTreeMap<QueueName, SharedQueue>,
    /// Places by deadline, in microseconds.
    pub(super) deadlines: BTreeSet<(i64, MessagePlace)>,
    pub(super) garbage: BTreeSet<MessagePlace>,
    pub(super) dead: BTreeMap<u64, DeadLetter>,
    pub(super) last_number: u64,
    /// How often everything was lost.
    losses: u64,
    deliveries: u64,
    pushes: u64,
}

#[derive(Default)]
pub(super) struct SharedQueue {
    pub(super) shards: Vec<Shard>,
    /// Where the message of each job is, and whether it was pushed again while it was claimed.
    jobs: HashMap<JobRef, (usize, MessageId, bool)>,
    /// The shard of the messages of each account, and their number.
    accounts: HashMap<Account, (usize, usize)>,
    returned: BTreeSet<(MessageId, usize)>,
    pushed: Arc<Notify>,
}

fn job_of(entry: &QueueEntry) -> JobRef {
    JobRef {
        account: entry.account.clone(),
        id: entry.id.clone(),
    }
}

impl QueueServer {
    /// A server without messages.
    pub fn new(clock: SimulatedClock, planted: Option<PlantedBug>) -> Self {
        Self {
            clock,
            planted,
            state: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }

    /// Loses everything, as a server without disk that is started again.
    pub fn lose_everything(&self) {
        let mut state = self.lock();
        for queue in state.queues.values_mut() {
            let pushed = Arc::clone(&queue.pushed);
            *queue = SharedQueue {
                pushed,
                ..SharedQueue::default()
            };
        }
        state.deadlines.clear();
        state.garbage.clear();
        state.dead.clear();
        state.losses += 1;
    }

    /// How many messages were delivered in all, for each that was pushed.
    pub fn delivery_counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.pushes, state.deliveries)
    }

    pub(super) fn epoch(&self) -> String {
        self.lock().losses.to_string()
    }

    /// Notified when a message waits.
    pub(super) fn pushed(&self, queue: &QueueName) -> Arc<Notify> {
        Arc::clone(&self.lock().queue(queue).pushed)
    }

    pub(super) fn push(
        &self,
        queue: &QueueName,
        entry: QueueEntry,
        holds_job: bool,
        consumer: &str,
    ) -> MessagePlace {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.pushes += 1;
        let job = job_of(&entry);
        let shared = state.queue(queue);
        if let Some((shard, id, _)) = shared.jobs.get(&job).copied() {
            let owner = shared.shards[shard].owner(&id).cloned();
            match owner {
                // An earlier process with this name took it.
                Some(owner) if &*owner.consumer == consumer && !holds_job => {
                    shared.give_back(shard, id, owner.deliveries, now);
                }
                Some(_) => drop(shared.jobs.insert(job, (shard, id, true))),
                None => {}
            }
            return MessagePlace {
                queue: queue.clone(),
                shard,
                id,
            };
        }
        let number = state.last_number + 1;
        if self.has(PlantedBug::LostPush) && number.is_multiple_of(5) {
            state.last_number = number;
            let id = (now / 1000, number);
            return MessagePlace {
                queue: queue.clone(),
                shard: 0,
                id,
            };
        }
        state.add(queue, entry, now)
    }

    /// Delivers a message to a consumer: one that was put back, or one of the shards, from `first` on.
    pub(super) fn take(
        &self,
        queue: &QueueName,
        consumer: &Arc<str>,
        first: usize,
    ) -> Option<DeliveredEntry> {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        loop {
            let delivered = state.queue(queue).take(queue, consumer, first, now)?;
            if state.garbage.contains(&delivered.place) {
                state.delete(&delivered.place);
                continue;
            }
            state.deliveries += 1;
            let repeats = self.has(PlantedBug::DoubleLease) || self.has(PlantedBug::DoubleDelivery);
            if repeats && state.deliveries.is_multiple_of(5) {
                let MessagePlace { shard, id, .. } = delivered.place;
                state.queue(queue).give_back(shard, id, 1, now);
            }
            if self.has(PlantedBug::AckBeforeCommit) {
                state.delete(&delivered.place);
            }
            return Some(delivered);
        }
    }

    /// Lets the messages wait again that a consumer has and does not know.
    pub(super) fn recover(
        &self,
        queue: &QueueName,
        consumer: &str,
        known: &BTreeSet<(usize, MessageId)>,
        most: u32,
    ) {
        let now = self.clock.micros();
        let mut state = self.lock();
        let shared = state.queue(queue);
        let mut unknown = Vec::new();
        for (number, shard) in shared.shards.iter().enumerate() {
            for (id, delivery) in &shard.pending {
                let is_own = &*delivery.consumer == consumer;
                if is_own && delivery.deliveries < most && !known.contains(&(number, *id)) {
                    unknown.push((number, *id, delivery.deliveries));
                }
            }
        }
        for (shard, id, deliveries) in unknown {
            shared.give_back(shard, id, deliveries, now);
        }
    }

    /// Renews a claim; returns whether the consumer has it.
    pub(super) fn renew(&self, place: &MessagePlace, consumer: &str) -> bool {
        let now = self.clock.micros();
        let mut state = self.lock();
        let Some(shard) = state.shard(place) else {
            return false;
        };
        if !shard.is_held(&place.id, consumer) || !shard.messages.contains_key(&place.id) {
            return false;
        }
        if let Some(delivery) = shard.pending.get_mut(&place.id) {
            delivery.at = now;
        }
        true
    }

    pub(super) fn ack(&self, place: &MessagePlace, consumer: &str) -> bool {
        let now = self.clock.micros();
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_held = state
            .shard(place)
            .is_some_and(|shard| shard.is_held(&place.id, consumer));
        if !is_held {
            return self.has(PlantedBug::AckBeforeCommit);
        }
        let job = state.entry(place).map(job_of);
        let known = job.and_then(|job| state.queue(&place.queue).jobs.get(&job).copied());
        let is_pushed_again = known == Some((place.shard, place.id, true));
        if let Some(entry) = state.delete(place).filter(|_| is_pushed_again) {
            state.add(&place.queue, entry, now);
        }
        true
    }

    /// Lets a message wait again; `uncounted` of its deliveries do not count.
    pub(super) fn put_back(&self, place: &MessagePlace, consumer: &str, uncounted: u32) {
        let now = self.clock.micros();
        let mut state = self.lock();
        let shared = state.queue(&place.queue);
        let Some(shard) = shared.shards.get(place.shard) else {
            return;
        };
        if let Some(delivery) = shard.owner(&place.id)
            && &*delivery.consumer == consumer
        {
            let deliveries = delivery.deliveries.saturating_sub(uncounted);
            shared.give_back(place.shard, place.id, deliveries, now);
        }
    }

    pub(super) fn put_back_job(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> PutBackResult {
        let now = self.clock.micros();
        let mut state = self.lock();
        let shared = state.queue(queue);
        let job = JobRef {
            account: account.clone(),
            id: id.clone(),
        };
        let Some((shard, message, _)) = shared.jobs.get(&job).copied() else {
            return PutBackResult::NoEntry;
        };
        match shared.shards[shard].owner(&message).cloned() {
            Some(owner) => {
                shared.give_back(shard, message, owner.deliveries, now);
                PutBackResult::PutBack
            }
            None => PutBackResult::Waiting,
        }
    }

    /// Removes the message of a job unless it is claimed.
    pub(super) fn remove(&self, queue: &QueueName, account: &Account, id: &JobId) {
        let mut state = self.lock();
        let job = JobRef {
            account: account.clone(),
            id: id.clone(),
        };
        let shared = state.queue(queue);
        if let Some((shard, id, _)) = shared.jobs.get(&job).copied()
            && shared.shards[shard].owner(&id).is_none()
        {
            state.delete(&MessagePlace {
                queue: queue.clone(),
                shard,
                id,
            });
        }
    }
}

impl QueueState {
    pub(super) fn queue(&mut self, name: &QueueName) -> &mut SharedQueue {
        let queue = self.queues.entry(name.clone()).or_default();
        if queue.shards.is_empty() {
            queue.shards.resize_with(SHARDS, Shard::default);
        }
        queue
    }

    pub(super) fn shard(&mut self, place: &MessagePlace) -> Option<&mut Shard> {
        self.queue(&place.queue).shards.get_mut(place.shard)
    }

    pub(super) fn entry(&self, place: &MessagePlace) -> Option<&QueueEntry> {
        let shard = self.queues.get(&place.queue)?.shards.get(place.shard)?;
        shard.messages.get(&place.id)
    }

    /// Adds a message behind the others of its account.
    fn add(&mut self, name: &QueueName, entry: QueueEntry, now: i64) -> MessagePlace {
        self.last_number += 1;
        let id = (now / 1000, self.last_number);
        let (job, deadline) = (job_of(&entry), entry.deadline);
        let queue = self.queue(name);
        let shard = queue.shard_of(&entry.account);
        let account = queue.accounts.entry(entry.account.clone());
        let (_, count) = account.or_insert((shard, 0));
        *count += 1;
        queue.jobs.insert(job, (shard, id, false));
        queue.shards[shard].messages.insert(id, entry);
        queue.pushed.notify_one();
        let place = MessagePlace {
            queue: name.clone(),
            shard,
            id,
        };
        if let Some(deadline) = deadline {
            self.deadlines
                .insert((deadline.as_microsecond(), place.clone()));
        }
        place
    }

    pub(super) fn delete(&mut self, place: &MessagePlace) -> Option<QueueEntry> {
        self.garbage.remove(place);
        let queue = self.queue(&place.queue);
        queue.returned.remove(&(place.id, place.shard));
        let entry = queue.shards.get_mut(place.shard)?.delete(&place.id)?;
        let job = job_of(&entry);
        if queue
            .jobs
            .get(&job)
            .is_some_and(|(shard, id, _)| (*shard, *id) == (place.shard, place.id))
        {
            queue.jobs.remove(&job);
            queue.uncount(&entry.account);
        }
        if let Some(deadline) = entry.deadline {
            self.deadlines
                .remove(&(deadline.as_microsecond(), place.clone()));
        }
        Some(entry)
    }
}

impl SharedQueue {
    /// The shard that has the other messages of an account, otherwise the emptiest of its shards.
    fn shard_of(&self, account: &Account) -> usize {
        if let Some((shard, count)) = self.accounts.get(account)
            && *count > 0
        {
            return *shard;
        }
        let hash = account.as_str().bytes().fold(7usize, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        // An odd step reaches different shards, because their number is a power of two.
        let (first, step) = (hash % SHARDS, (hash / SHARDS) | 1);
        let subset = (0..ACCOUNT_SHARDS).map(|n| (first + n * step) % SHARDS);
        let emptiest = subset.min_by_key(|shard| self.shards[*shard].messages.len());
        emptiest.unwrap_or(first)
    }

    fn uncount(&mut self, account: &Account) {
        if let Some((_, count)) = self.accounts.get_mut(account) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.accounts.remove(account);
            }
        }
    }

    /// Lets a delivered message wait again, at its position.
    fn give_back(&mut self, shard: usize, id: MessageId, deliveries: u32, now: i64) {
        self.returned.insert((id, shard));
        let delivery = Delivery {
            consumer: RETURNED.into(),
            deliveries,
            at: now,
        };
        self.shards[shard].pending.insert(id, delivery);
        let job = self.shards[shard].messages.get(&id).map(job_of);
        if let Some(known) = job.and_then(|job| self.jobs.get_mut(&job))
            && (known.0, known.1) == (shard, id)
        {
            known.2 = false;
        }
        self.pushed.notify_one();
    }

    fn take(
        &mut self,
        name: &QueueName,
        consumer: &Arc<str>,
        first: usize,
        now: i64,
    ) -> Option<DeliveredEntry> {
        let delivered =
            |shard: usize, id: MessageId, entry: QueueEntry, deliveries: u32| DeliveredEntry {
                place: MessagePlace {
                    queue: name.clone(),
                    shard,
                    id,
                },
                entry,
                deliveries,
            };
        while let Some((id, shard)) = self.returned.pop_first() {
            let stream = &mut self.shards[shard];
            let is_waiting = stream.is_held(&id, RETURNED);
            let Some(delivery) = stream.pending.get_mut(&id).filter(|_| is_waiting) else {
                continue;
            };
            delivery.consumer = Arc::clone(consumer);
            delivery.deliveries += 1;
            delivery.at = now;
            let deliveries = delivery.deliveries;
            match stream.messages.get(&id) {
                Some(entry) => return Some(delivered(shard, id, entry.clone(), deliveries)),
                None => drop(stream.pending.remove(&id)),
            }
        }
        for offset in 0..SHARDS {
            let shard = (first + offset) % SHARDS;
            if let Some((id, entry)) = self.shards[shard].read(consumer, now) {
                return Some(delivered(shard, id, entry, 1));
            }
        }
        None
    }
}
