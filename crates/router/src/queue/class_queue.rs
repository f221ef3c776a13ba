//! The waiters of one priority class, in the order of the algorithm.

use std::collections::BTreeMap;

use tidegate_core::Account;
use tidegate_core::fair_queue::FairQueue;

use super::fifo::FifoQueue;
use super::{WaitEntry, WaiterNumber};
use crate::fleet::Algorithm;

/// The waiters of one class.
pub(crate) enum ClassQueue {
    Fifo(FifoQueue),
    Fair(FairQueue<WaitEntry>),
}

impl ClassQueue {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Fifo => Self::Fifo(FifoQueue::default()),
            Algorithm::Fair => Self::Fair(FairQueue::default()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
            Self::Fair(queue) => queue.len(),
        }
    }

    /// The waiters that share the capacity with those of this account.
    pub(crate) fn scope_len(&self, account: &Account) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
            Self::Fair(queue) => queue.owner_len(account),
        }
    }

    pub(crate) fn len_ahead(&self, account: &Account) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
            Self::Fair(queue) => queue.len_ahead(account),
        }
    }

    pub(crate) fn push(&mut self, entry: WaitEntry) {
        match self {
            Self::Fifo(queue) => queue.push(entry),
            Self::Fair(queue) => queue.push(entry),
        }
    }

    pub(crate) fn pop_accepted(
        &mut self,
        accept: impl FnMut(&WaitEntry) -> bool,
    ) -> Option<WaitEntry> {
        match self {
            Self::Fifo(queue) => queue.pop_accepted(accept),
            Self::Fair(queue) => queue.pop_accepted(accept),
        }
    }

    /// Removes the last of the waiters that share the capacity with those of this account.
    pub(crate) fn pop_last(&mut self, account: &Account) -> Option<WaitEntry> {
        match self {
            Self::Fifo(queue) => queue.pop_last(),
            Self::Fair(queue) => queue.pop_last(account),
        }
    }

    pub(crate) fn remove(&mut self, number: WaiterNumber, account: &Account) -> Option<WaitEntry> {
        match self {
            Self::Fifo(queue) => queue.remove(number),
            Self::Fair(queue) => queue.remove(account, |entry| entry.number == number),
        }
    }

    /// Removes the waiters that `remove` selects.
    pub(crate) fn extract(&mut self, remove: impl Fn(&WaitEntry) -> bool) -> Vec<WaitEntry> {
        let mut numbers = Vec::new();
        let mut select = |entry: &WaitEntry| {
            if remove(entry) {
                numbers.push((entry.number, entry.ask.account.clone()));
            }
        };
        match self {
            Self::Fifo(queue) => queue.iter().for_each(&mut select),
            Self::Fair(queue) => queue.iter().for_each(&mut select),
        }
        let remove = |(number, account)| self.remove(number, &account);
        numbers.into_iter().filter_map(remove).collect()
    }

    pub(crate) fn count_accounts(&self, counts: &mut BTreeMap<Account, usize>) {
        let mut count = |account: &Account, n| *counts.entry(account.clone()).or_default() += n;
        match self {
            Self::Fifo(queue) => queue.iter().for_each(|entry| count(&entry.ask.account, 1)),
            Self::Fair(queue) => queue.owners().for_each(|(account, n)| count(account, n)),
        }
    }

    /// All waiters, in order of arrival.
    pub(crate) fn into_sorted(self) -> Vec<WaitEntry> {
        let mut entries: Vec<WaitEntry> = match self {
            Self::Fifo(queue) => queue.into_entries().collect(),
            Self::Fair(queue) => queue.into_waiters().collect(),
        };
        entries.sort_by_key(|entry| entry.number);
        entries
    }
}
