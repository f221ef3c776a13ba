//! The in-memory queue of one model: the waiting entries and the leases on taken ones.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use jiff::Timestamp;
use tidegate_core::fair_queue::{FairQueue, HasOwner};
use tidegate_core::queue::{Priority, QueueDepth, QueueEntry};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Set in the numbers of low-priority entries, so that they come after all others of their account.
const LOW: u64 = 1 << 63;

/// The queue of one model.
#[derive(Default)]
pub(super) struct ModelQueue {
    /// The waiting entries, and removed ones that were not collected yet.
    order: FairQueue<OrderKey>,
    /// All entries, waiting or taken, by their number. Removed entries are absent.
    entries: HashMap<u64, Box<StoredEntry>>,
    /// The numbers of all entries, found by account and id, which only the entries hold.
    numbers: HashTable<u64>,
    hasher: RandomState,
    /// The leases on taken entries, by lease number.
    leases: HashMap<u64, EntryLease>,
    /// Notified when an entry begins to wait.
    pub(super) pushed: Arc<Notify>,
}

/// The position of an entry in the fair queue.
struct OrderKey {
    account: Account,
    number: u64,
    priority: Priority,
}

impl HasOwner for OrderKey {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }

    fn order(&self) -> u64 {
        match self.priority {
            Priority::Normal => self.number,
            Priority::Low => LOW | self.number,
        }
    }
}

/// An entry. There may be a million, so it is small: what few entries have is in a box.
struct StoredEntry {
    account: Account,
    id: JobId,
    /// When it was pushed, in microseconds since 1970.
    since: i64,
    deadline: Option<Box<EntryDeadline>>,
    /// The same job, pushed again while this entry was taken.
    pushed_again: Option<Box<QueueEntry>>,
    priority: Priority,
    /// How often it was handed out and not put back.
    deliveries: u32,
}

/// The deadline of an entry.
struct EntryDeadline {
    at: Timestamp,
    /// The same on the monotonic clock.
    due: Instant,
}

impl StoredEntry {
    fn hash(&self, hasher: &RandomState) -> u64 {
        hasher.hash_one((&self.account, &self.id))
    }

    fn to_entry(&self) -> QueueEntry {
        QueueEntry {
            account: self.account.clone(),
            id: self.id.clone(),
            priority: self.priority,
            deadline: self.deadline.as_ref().map(|deadline| deadline.at),
            details: None,
        }
    }
}

/// An entry that was taken.
pub(super) struct TakenEntry {
    pub(super) entry: QueueEntry,
    /// How often it was handed out, this time included.
    pub(super) deliveries: u32,
}

/// An entry that was removed.
pub(super) struct RemovedEntry {
    /// The number of the entry.
    pub(super) number: u64,
    pub(super) due: Option<Instant>,
    /// The same job, to be pushed now.
    pub(super) pushed_again: Option<QueueEntry>,
}

/// The right of a claim to one entry.
struct EntryLease {
    number: u64,
    renewed: Instant,
    /// Whether upkeep holds the entry, because the claim before was lost.
    was_lost: bool,
}

impl EntryLease {
    fn new(number: u64) -> Self {
        Self {
            number,
            renewed: Instant::now(),
            was_lost: false,
        }
    }
}

impl ModelQueue {
    /// Adds an entry unless its job is already in the queue; returns whether it was added.
    pub(super) fn push(&mut self, number: u64, entry: QueueEntry, due: Option<Instant>) -> bool {
        if let Some(number) = self.number_of(&entry.account, &entry.id) {
            if self.leases.values().any(|lease| lease.number == number)
                && let Some(stored) = self.entries.get_mut(&number)
            {
                stored.pushed_again = Some(Box::new(entry));
            }
            return false;
        }
        self.order.push(OrderKey {
            account: entry.account.clone(),
            number,
            priority: entry.priority,
        });
        let deadline = entry
            .deadline
            .zip(due)
            .map(|(at, due)| Box::new(EntryDeadline { at, due }));
        let stored = StoredEntry {
            account: entry.account,
            id: entry.id,
            since: Timestamp::now().as_microsecond(),
            deadline,
            pushed_again: None,
            priority: entry.priority,
            deliveries: 0,
        };
        let hash = stored.hash(&self.hasher);
        self.entries.insert(number, Box::new(stored));
        let (entries, hasher) = (&self.entries, &self.hasher);
        // The table hashes its numbers again when it grows.
        self.numbers.insert_unique(hash, number, |number| {
            entries.get(number).map_or(0, |stored| stored.hash(hasher))
        });
        self.pushed.notify_waiters();
        true
    }

    /// Takes the next entry under a new lease.
    pub(super) fn take(&mut self, lease: u64) -> Option<TakenEntry> {
        let entries = &self.entries;
        let OrderKey { number, .. } = self
            .order
            .pop_where(|key| entries.contains_key(&key.number))?;
        self.leases.insert(lease, EntryLease::new(number));
        let stored = self.entries.get_mut(&number)?;
        stored.deliveries += 1;
        self.taken(number)
    }

    fn taken(&self, number: u64) -> Option<TakenEntry> {
        let stored = self.entries.get(&number)?;
        Some(TakenEntry {
            entry: stored.to_entry(),
            deliveries: stored.deliveries,
        })
    }

    /// The deadline of the entry with this number, on the monotonic clock.
    pub(super) fn due(&self, number: u64) -> Option<Instant> {
        let deadline = self.entries.get(&number)?.deadline.as_ref()?;
        Some(deadline.due)
    }

    fn number_of(&self, account: &Account, id: &JobId) -> Option<u64> {
        let is_it = |number: &u64| {
            let stored = self.entries.get(number);
            stored.is_some_and(|stored| stored.account == *account && stored.id == *id)
        };
        let hash = self.hasher.hash_one((account, id));
        self.numbers.find(hash, is_it).copied()
    }

    /// The entry with this number, waiting or taken.
    pub(super) fn entry(&self, number: u64) -> Option<QueueEntry> {
        Some(self.entries.get(&number)?.to_entry())
    }

    /// Returns whether the lease is still valid.
    pub(super) fn renew(&mut self, lease: u64) -> bool {
        let lease = self.leases.get_mut(&lease);
        lease.map(|lease| lease.renewed = Instant::now()).is_some()
    }

    /// Removes a taken entry, if the lease is still valid.
    pub(super) fn ack(&mut self, lease: u64) -> Option<RemovedEntry> {
        let EntryLease { number, .. } = self.leases.remove(&lease)?;
        self.remove_number(number)
    }

    /// Makes a taken entry wait again, at its old position.
    pub(super) fn put_back(&mut self, lease: u64) {
        let Some(EntryLease {
            number, was_lost, ..
        }) = self.leases.remove(&lease)
        else {
            return;
        };
        if let Some(stored) = self.entries.get_mut(&number) {
            // The entry waits again, so the second push has nothing left to do.
            stored.pushed_again = None;
            stored.deliveries -= u32::from(!was_lost);
            self.order.push(OrderKey {
                account: stored.account.clone(),
                number,
                priority: stored.priority,
            });
            self.pushed.notify_waiters();
        }
    }

    /// Removes a waiting entry. A taken entry stays.
    pub(super) fn remove(&mut self, account: &Account, id: &JobId) -> Option<RemovedEntry> {
        let number = self.number_of(account, id)?;
        if self.leases.values().any(|lease| lease.number == number) {
            return None;
        }
        self.remove_number(number)
    }

    /// Removes an entry, waiting or taken.
    pub(super) fn discard(&mut self, number: u64) -> Option<RemovedEntry> {
        self.leases.retain(|_, lease| lease.number != number);
        self.remove_number(number)
    }

    fn remove_number(&mut self, number: u64) -> Option<RemovedEntry> {
        let stored = self.entries.remove(&number)?;
        let hash = stored.hash(&self.hasher);
        if let Ok(known) = self.numbers.find_entry(hash, |known| *known == number) {
            known.remove();
        }
        let StoredEntry {
            deadline,
            pushed_again,
            ..
        } = *stored;
        Some(RemovedEntry {
            number,
            due: deadline.map(|deadline| deadline.due),
            pushed_again: pushed_again.map(|entry| *entry),
        })
    }

    /// The leases that were not renewed for `idle`.
    pub(super) fn expired_leases(&self, idle: Duration, limit: usize) -> Vec<u64> {
        self.leases
            .iter()
            .filter(|(_, lease)| lease.renewed.elapsed() >= idle)
            .map(|(lease, _)| *lease)
            .take(limit)
            .collect()
    }

    /// Transfers an entry from one lease to another.
    pub(super) fn transfer(&mut self, from: u64, to: u64) -> Option<TakenEntry> {
        let EntryLease { number, .. } = self.leases.remove(&from)?;
        let taken = self.taken(number)?;
        let lease = EntryLease {
            was_lost: true,
            ..EntryLease::new(number)
        };
        self.leases.insert(to, lease);
        Some(taken)
    }

    /// Drops the order keys of removed entries; returns their number.
    pub(super) fn collect(&mut self) -> usize {
        let before = self.order.len();
        let entries = &self.entries;
        self.order
            .retain_all(|key| entries.contains_key(&key.number));
        before - self.order.len()
    }

    /// The numbers of the entries that were pushed before this time.
    pub(super) fn older_than(&self, before: Timestamp) -> impl Iterator<Item = u64> {
        let before = before.as_microsecond();
        self.entries
            .iter()
            .filter(move |(_, stored)| stored.since < before)
            .map(|(number, _)| *number)
    }

    /// Whether the queue is empty and no consumer waits for an entry.
    pub(super) fn is_unused(&self) -> bool {
        self.entries.is_empty() && self.order.is_empty() && Arc::strong_count(&self.pushed) == 1
    }

    /// How long the oldest waiting entry has waited. Looks at all entries.
    pub(super) fn oldest_wait(&self, now: Timestamp) -> Option<Duration> {
        let taken: HashSet<u64> = self.leases.values().map(|lease| lease.number).collect();
        let waiting = self
            .entries
            .iter()
            .filter(|(number, _)| !taken.contains(number));
        let since = waiting.map(|(_, stored)| stored.since).min()?;
        let age = now.as_microsecond().saturating_sub(since);
        Some(Duration::from_micros(u64::try_from(age).unwrap_or(0)))
    }

    pub(super) fn depth(&self) -> QueueDepth {
        let claimed = self.leases.len();
        QueueDepth {
            waiting: self.entries.len() - claimed,
            claimed,
        }
    }
}
