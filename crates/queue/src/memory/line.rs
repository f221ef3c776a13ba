//! One line: who waits, and who is in whose hands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::fair_queue::{FairQueue, HasOwner};
use tidegate_core::queue::{Priority, QueueDepth, QueueEntry};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Numbers of those who go after all others of their account begin here.
const LOW: u64 = 1 << 63;

/// One line.
#[derive(Default)]
pub(super) struct Line {
    /// Those who wait, and those who did before they were struck.
    waiting: FairQueue<Waiting>,
    /// All who are there, by the number with which they came. Who was struck is not.
    there: HashMap<u64, Present>,
    numbers: HashMap<(Account, JobId), u64>,
    /// Who is in somebody's hands, by the number of the taking.
    leases: HashMap<u64, Lease>,
    /// Somebody has come.
    pub(super) came: Arc<Notify>,
}

struct Waiting {
    account: Account,
    number: u64,
    priority: Priority,
}

impl HasOwner for Waiting {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }

    fn number(&self) -> u64 {
        match self.priority {
            Priority::Normal => self.number,
            Priority::Low => LOW | self.number,
        }
    }
}

struct Present {
    entry: QueueEntry,
    since: Timestamp,
    /// Its deadline by the clock that nobody sets.
    due: Option<Instant>,
    /// The same job once more: it came while this one was in hand.
    again: Option<QueueEntry>,
}

/// An entry that is gone.
pub(super) struct Gone {
    /// The number with which it came.
    pub(super) number: u64,
    pub(super) due: Option<Instant>,
    /// Who waits in its place from now on.
    pub(super) again: Option<QueueEntry>,
}

struct Lease {
    number: u64,
    renewed: Instant,
}

impl Line {
    /// One more, unless it is there. Says whether it was not.
    pub(super) fn push(&mut self, number: u64, entry: QueueEntry, due: Option<Instant>) -> bool {
        let key = (entry.account.clone(), entry.id.clone());
        if let Some(number) = self.numbers.get(&key) {
            if self.leases.values().any(|lease| lease.number == *number)
                && let Some(present) = self.there.get_mut(number)
            {
                present.again = Some(entry);
            }
            return false;
        }
        self.numbers.insert(key, number);
        self.waiting.push(Waiting {
            account: entry.account.clone(),
            number,
            priority: entry.priority,
        });
        self.there.insert(
            number,
            Present {
                entry,
                since: Timestamp::now(),
                due,
                again: None,
            },
        );
        self.came.notify_waiters();
        true
    }

    /// The next, by this taking.
    pub(super) fn take(&mut self, lease: u64) -> Option<QueueEntry> {
        let there = &self.there;
        let Waiting { number, .. } = self
            .waiting
            .pop_where(|waiting| there.contains_key(&waiting.number))?;
        self.leases.insert(
            lease,
            Lease {
                number,
                renewed: Instant::now(),
            },
        );
        Some(self.there.get(&number)?.entry.clone())
    }

    pub(super) fn renew(&mut self, lease: u64) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.renewed = Instant::now();
        }
    }

    /// An entry goes, if this taking still had it.
    pub(super) fn ack(&mut self, lease: u64) -> Option<Gone> {
        let Lease { number, .. } = self.leases.remove(&lease)?;
        self.remove_number(number)
    }

    /// An entry waits again, where it stood.
    pub(super) fn put_back(&mut self, lease: u64) {
        let Some(Lease { number, .. }) = self.leases.remove(&lease) else {
            return;
        };
        if let Some(Present { entry, again, .. }) = self.there.get_mut(&number) {
            // It waits: that is what the other one wanted.
            *again = None;
            self.waiting.push(Waiting {
                account: entry.account.clone(),
                number,
                priority: entry.priority,
            });
            self.came.notify_waiters();
        }
    }

    /// Somebody who waits is not handed out any more. Who is in somebody's hands stays there.
    pub(super) fn remove(&mut self, account: &Account, id: &JobId) -> Option<Gone> {
        let number = *self.numbers.get(&(account.clone(), id.clone()))?;
        if self.leases.values().any(|lease| lease.number == number) {
            return None;
        }
        self.remove_number(number)
    }

    fn remove_number(&mut self, number: u64) -> Option<Gone> {
        let Present {
            entry, due, again, ..
        } = self.there.remove(&number)?;
        self.numbers.remove(&(entry.account, entry.id));
        Some(Gone { number, due, again })
    }

    /// Takings that were not renewed for so long.
    pub(super) fn idle(&self, idle: Duration, limit: usize) -> Vec<u64> {
        self.leases
            .iter()
            .filter(|(_, lease)| lease.renewed.elapsed() >= idle)
            .map(|(lease, _)| *lease)
            .take(limit)
            .collect()
    }

    /// Gives an entry from one taking to another.
    pub(super) fn pass_on(&mut self, from: u64, to: u64) -> Option<QueueEntry> {
        let Lease { number, .. } = self.leases.remove(&from)?;
        let entry = self.there.get(&number)?.entry.clone();
        self.leases.insert(
            to,
            Lease {
                number,
                renewed: Instant::now(),
            },
        );
        Some(entry)
    }

    /// Removes what is left of those who were struck; says of how many.
    pub(super) fn collect(&mut self) -> usize {
        let before = self.waiting.len();
        let there = &self.there;
        self.waiting
            .retain_all(|waiting| there.contains_key(&waiting.number));
        before - self.waiting.len()
    }

    /// Who has been there since before this moment.
    pub(super) fn since_before(
        &self,
        before: Timestamp,
    ) -> impl Iterator<Item = (u64, &QueueEntry)> {
        self.there
            .iter()
            .filter(move |(_, present)| present.since < before)
            .map(|(number, present)| (*number, &present.entry))
    }

    /// Whether nobody is there, and nobody waits for somebody to come.
    pub(super) fn is_deserted(&self) -> bool {
        self.there.is_empty() && self.waiting.is_empty() && Arc::strong_count(&self.came) == 1
    }

    pub(super) fn depth(&self) -> QueueDepth {
        let taken = self.leases.len();
        QueueDepth {
            waiting: self.there.len() - taken,
            taken,
        }
    }
}
