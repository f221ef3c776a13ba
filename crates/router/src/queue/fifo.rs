//! A queue in order of arrival, whatever the account.

use std::collections::VecDeque;

use super::{WaitEntry, WaiterNumber};

/// The waiters, sorted by number.
#[derive(Default)]
pub(crate) struct FifoQueue(VecDeque<WaitEntry>);

impl FifoQueue {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn push(&mut self, entry: WaitEntry) {
        self.0.push_back(entry);
    }

    pub(crate) fn pop_accepted(
        &mut self,
        accept: impl FnMut(&WaitEntry) -> bool,
    ) -> Option<WaitEntry> {
        let index = self.0.iter().position(accept)?;
        self.0.remove(index)
    }

    pub(crate) fn pop_last(&mut self) -> Option<WaitEntry> {
        self.0.pop_back()
    }

    pub(crate) fn remove(&mut self, number: WaiterNumber) -> Option<WaitEntry> {
        let index = self
            .0
            .binary_search_by_key(&number, |entry| entry.number)
            .ok()?;
        self.0.remove(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitEntry> {
        self.0.iter()
    }

    pub(crate) fn into_entries(self) -> impl Iterator<Item = WaitEntry> {
        self.0.into_iter()
    }
}
