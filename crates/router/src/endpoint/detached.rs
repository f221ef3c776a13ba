//! The permits of an endpoint that outlive the responses of their requests.
//!
//! Removing an entry is the only way to give its permit back, so that an event, a timeout and a
//! reconciliation that meet give it back once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::permits::{RequestId, SlotLease};

/// The events for permits that are not detached yet which are remembered.
const MAX_EARLY: usize = 1024;

/// The detached permits of an endpoint.
#[derive(Default)]
pub(crate) struct DetachedPermits(Mutex<DetachedState>);

#[derive(Default)]
struct DetachedState {
    held: HashMap<RequestId, DetachedEntry>,
    /// Requests whose event arrived before the head of their response, the oldest first.
    early: VecDeque<RequestId>,
}

struct DetachedEntry {
    deadline: Instant,
    /// Dropped outside the lock: that serves waiters.
    lease: SlotLease,
}

impl DetachedPermits {
    /// Holds a slot until it is released by id or the deadline passes. A second slot for the same id is
    /// given back.
    pub(crate) fn hold(&self, id: RequestId, lease: SlotLease, deadline: Instant) {
        let entry = DetachedEntry { deadline, lease };
        let given_back = {
            let mut state = self.lock();
            match state.early.iter().position(|early| *early == id) {
                Some(index) => {
                    state.early.remove(index);
                    Some(entry)
                }
                None => state.held.insert(id, entry),
            }
        };
        drop(given_back);
    }

    pub(crate) fn release(&self, id: RequestId) -> bool {
        let entry = {
            let mut state = self.lock();
            let entry = state.held.remove(&id);
            if entry.is_none() && !state.early.contains(&id) {
                if state.early.len() == MAX_EARLY {
                    state.early.pop_front();
                }
                state.early.push_back(id);
            }
            entry
        };
        entry.is_some()
    }

    pub(crate) fn retain(&self, keep: impl Fn(RequestId) -> bool) -> usize {
        self.remove_where(|id, _| !keep(id))
    }

    pub(crate) fn expire(&self, now: Instant) -> usize {
        self.remove_where(|_, deadline| deadline <= now)
    }

    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.lock().held.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().held.len()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.lock().held.values().map(|entry| entry.deadline).min()
    }

    fn remove_where(&self, remove: impl Fn(RequestId, Instant) -> bool) -> usize {
        let removed: Vec<SlotLease> = self
            .lock()
            .held
            .extract_if(|id, entry| remove(*id, entry.deadline))
            .map(|(_, entry)| entry.lease)
            .collect();
        removed.len()
    }

    fn lock(&self) -> MutexGuard<'_, DetachedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
