//! The queue of a model: the requests that found no free permit.
//!
//! A waiter is a place in the queue and a oneshot channel. It leaves the queue when it gets a permit, when
//! it is refused, and when its client goes away. Waiters are lost when the process exits.
//!
//! Each priority class has a queue of its own, in the order of the model's algorithm. A higher class is
//! served first. A class that was passed over a number of times in a row is served next, and each class
//! has a part of the places reserved, so that none is starved.

mod class_queue;
mod fifo;
mod memory;
mod waiter;

use tidegate_core::Account;
use tidegate_core::fair_queue::HasOwner;
use tokio::sync::oneshot;
use tokio::time::Instant;

use class_queue::ClassQueue;
pub(crate) use memory::{WaitingMemory, WaitingMemoryGuard};
pub use waiter::PermitWaiter;

use crate::fleet::{Algorithm, PriorityClass, QueueConfig};
use crate::group::{Ask, Full};
use crate::permits::EndpointPermit;

/// The largest capacity of a queue.
const MAX_CAPACITY: usize = 1000;
/// A class may have one of this many places, whatever the others have.
const RESERVED_PART: usize = 8;
/// The classes, the highest first, and how often each may be passed over in a row.
const CLASSES: [(PriorityClass, u32); 3] = [
    (PriorityClass::High, u32::MAX),
    (PriorityClass::Normal, 4),
    (PriorityClass::Low, 8),
];

/// The number of waiters that a queue may have: of each account if it is fair, of all otherwise.
pub(crate) fn capacity(config: &QueueConfig, local_permits: u64) -> usize {
    let factor = u64::from(config.capacity.max(config.site_capacity));
    let capacity = factor.saturating_mul(local_permits);
    usize::try_from(capacity).map_or(MAX_CAPACITY, |capacity| capacity.min(MAX_CAPACITY))
}

/// The identity of a waiter within its queue. A later waiter has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterNumber(u64);

/// A waiter.
pub(crate) struct WaitEntry {
    pub(crate) number: WaiterNumber,
    pub(crate) ask: Ask,
    pub(crate) since: Instant,
    pub(crate) reply: oneshot::Sender<Result<EndpointPermit, Full>>,
    /// Given back when the waiter leaves the queue.
    pub(crate) _memory: WaitingMemoryGuard,
}

/// Where a waiter is in the queue of its model.
pub(crate) struct QueuePlace {
    pub(crate) number: WaiterNumber,
    pub(crate) account: Account,
    pub(crate) class: PriorityClass,
    pub(crate) since: Instant,
}

impl QueuePlace {
    pub(crate) fn of(entry: &WaitEntry) -> Self {
        Self {
            number: entry.number,
            account: entry.ask.account.clone(),
            class: entry.ask.priority,
            since: entry.since,
        }
    }
}

impl WaitEntry {
    /// Ends the wait without a permit.
    pub(crate) fn refuse(self, full: Full) {
        // The client may have gone.
        self.reply.send(Err(full)).ok();
    }
}

impl HasOwner for WaitEntry {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.ask.account
    }

    fn order(&self) -> u64 {
        self.number.0
    }
}

/// The waiters of one model.
pub(crate) struct WaitQueue {
    algorithm: Algorithm,
    classes: [QueuedClass; 3],
    next_number: u64,
}

struct QueuedClass {
    class: PriorityClass,
    queue: ClassQueue,
    /// How often a higher class was served since this one was.
    passed_over: u32,
    passed_over_limit: u32,
}

impl QueuedClass {
    fn is_starved(&self) -> bool {
        self.passed_over >= self.passed_over_limit
    }
}

/// The queue is full.
pub(crate) struct Refused(pub(crate) WaitEntry);

impl WaitQueue {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let classes = CLASSES.map(|(class, passed_over_limit)| QueuedClass {
            class,
            queue: ClassQueue::new(algorithm),
            passed_over: 0,
            passed_over_limit,
        });
        Self {
            algorithm,
            classes,
            next_number: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.classes.iter().map(|class| class.queue.len()).sum()
    }

    /// The number of the next waiter.
    pub(crate) fn next_number(&mut self) -> WaiterNumber {
        self.next_number += 1;
        WaiterNumber(self.next_number)
    }

    /// Adds a waiter. If the queue is full, a waiter of another class may have to leave for it.
    pub(crate) fn push(
        &mut self,
        entry: WaitEntry,
        capacity: usize,
    ) -> Result<Option<WaitEntry>, Refused> {
        let removed = if self.scope_len(&entry.ask.account) < capacity {
            None
        } else {
            let Some(removed) = self.make_place(&entry, capacity) else {
                return Err(Refused(entry));
            };
            Some(removed)
        };
        let class = entry.ask.priority;
        self.class_mut(class).queue.push(entry);
        Ok(removed)
    }

    /// Removes and returns the next waiter that `accept` takes. Others keep their places.
    pub(crate) fn pop_accepted(
        &mut self,
        mut accept: impl FnMut(&WaitEntry) -> bool,
    ) -> Option<WaitEntry> {
        // The sort is stable: the higher class first.
        let mut order = [0, 1, 2];
        order.sort_by_key(|index| !self.classes[*index].is_starved());
        let (served, entry) = order.into_iter().find_map(|index| {
            let entry = self.classes[index].queue.pop_accepted(&mut accept)?;
            Some((index, entry))
        })?;
        self.classes[served].passed_over = 0;
        for lower in &mut self.classes[served + 1..] {
            lower.passed_over = match lower.queue.len() {
                0 => 0,
                _ => lower.passed_over.saturating_add(1),
            };
        }
        Some(entry)
    }

    /// Removes this waiter, if it still waits.
    pub(crate) fn remove(&mut self, place: &QueuePlace) -> Option<WaitEntry> {
        self.class_mut(place.class)
            .queue
            .remove(place.number, &place.account)
    }

    /// Removes all waiters, in order of arrival, the highest class first.
    pub(crate) fn drain(&mut self) -> Vec<WaitEntry> {
        let algorithm = self.algorithm;
        let drain = |class: &mut QueuedClass| {
            std::mem::replace(&mut class.queue, ClassQueue::new(algorithm)).into_sorted()
        };
        self.classes.iter_mut().flat_map(drain).collect()
    }

    /// Changes the algorithm and returns the waiters that do not fit any more.
    pub(crate) fn reconfigure(&mut self, algorithm: Algorithm, capacity: usize) -> Vec<WaitEntry> {
        if algorithm == self.algorithm {
            return self.trim(capacity);
        }
        let entries = self.drain();
        let next_number = self.next_number;
        *self = Self::new(algorithm);
        self.next_number = next_number;
        let mut without_place = Vec::new();
        for entry in entries {
            if self.scope_len(&entry.ask.account) < capacity {
                let class = entry.ask.priority;
                self.class_mut(class).queue.push(entry);
            } else {
                without_place.push(entry);
            }
        }
        without_place
    }

    /// The waiters that are served before a new one of this account and class.
    pub(crate) fn len_ahead(&self, account: &Account, class: PriorityClass) -> usize {
        let ahead = |other: &QueuedClass| match other.class >= class {
            true => other.queue.len_ahead(account),
            false => 0,
        };
        self.classes.iter().map(ahead).sum()
    }

    /// The accounts with waiters, with their number.
    pub(crate) fn waiting_accounts(&self) -> Vec<(Account, usize)> {
        let mut counts = std::collections::BTreeMap::<Account, usize>::new();
        for class in &self.classes {
            class.queue.count_accounts(&mut counts);
        }
        counts.into_iter().collect()
    }

    /// Removes the waiters that `remove` selects.
    pub(crate) fn extract(&mut self, remove: impl Fn(&WaitEntry) -> bool) -> Vec<WaitEntry> {
        let extract = |class: &mut QueuedClass| class.queue.extract(&remove);
        self.classes.iter_mut().flat_map(extract).collect()
    }

    /// The waiters that share the capacity with those of this account.
    fn scope_len(&self, account: &Account) -> usize {
        let len = |class: &QueuedClass| class.queue.scope_len(account);
        self.classes.iter().map(len).sum()
    }

    /// Removes the last waiter of a class, so that a waiter of another class fits: of the lowest class
    /// below it that has more than its reserved places, or of the highest one above it if the class of the
    /// new waiter has not used its own.
    fn make_place(&mut self, entry: &WaitEntry, capacity: usize) -> Option<WaitEntry> {
        let reserved = capacity / RESERVED_PART;
        let class = entry.ask.priority;
        let account = &entry.ask.account;
        let own = self.class_mut(class).queue.scope_len(account);
        let above_reserve = |other: &&mut QueuedClass| {
            other.queue.scope_len(account) > reserved.max(usize::from(other.class > class))
        };
        let lower = self
            .classes
            .iter_mut()
            .rev()
            .filter(|other| other.class < class)
            .find(above_reserve);
        let victim = match lower {
            Some(lower) => lower,
            None if own < reserved => self
                .classes
                .iter_mut()
                .filter(|other| other.class > class)
                .find(above_reserve)?,
            None => return None,
        };
        victim.queue.pop_last(account)
    }

    /// Removes waiters, the last of the lowest class first, until all others fit.
    fn trim(&mut self, capacity: usize) -> Vec<WaitEntry> {
        let mut removed = Vec::new();
        for (account, _) in self.waiting_accounts() {
            while self.scope_len(&account) > capacity {
                let last = |class: &mut QueuedClass| class.queue.pop_last(&account);
                let Some(entry) = self.classes.iter_mut().rev().find_map(last) else {
                    break;
                };
                removed.push(entry);
            }
        }
        removed
    }

    fn class_mut(&mut self, class: PriorityClass) -> &mut QueuedClass {
        let index = match class {
            PriorityClass::High => 0,
            PriorityClass::Normal => 1,
            PriorityClass::Low => 2,
        };
        &mut self.classes[index]
    }
}
