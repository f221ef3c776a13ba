//! The memory that the bodies of waiting requests occupy, over all models.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least that a waiter is counted with, so that the number of waiters is bounded too.
const MIN_BYTES: usize = 1024;

/// The memory of all waiters.
#[derive(Debug, Default)]
pub(crate) struct WaitingMemory {
    used: AtomicUsize,
    limit: AtomicUsize,
}

/// The memory of one waiter, given back on drop.
#[derive(Debug)]
pub(crate) struct WaitingMemoryGuard {
    memory: Arc<WaitingMemory>,
    bytes: usize,
}

impl WaitingMemory {
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves the memory of a body; `None` if that would be above the limit.
    pub(crate) fn try_reserve(self: &Arc<Self>, body_bytes: usize) -> Option<WaitingMemoryGuard> {
        let bytes = body_bytes.max(MIN_BYTES);
        let limit = self.limit.load(Ordering::Relaxed);
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(WaitingMemoryGuard {
            memory: self.clone(),
            bytes,
        })
    }
}

impl Drop for WaitingMemoryGuard {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
