//! The memory that the inputs of waiting jobs take.
//!
//! A recorded job keeps its input in memory while all such inputs fit; otherwise only its id is kept, and
//! the input is reloaded from the store when the job starts. Of jobs that are not recorded, no more are
//! accepted than fit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Smaller inputs are not counted: the rest of a job is as large.
const UNCOUNTED_BELOW: usize = 1024;
/// How many recorded jobs are kept in memory, ready to run. All others are entries of an index, which
/// are much smaller.
const MAX_RESIDENT: usize = 1024;

/// The memory for the inputs of the waiting jobs of all models, in bytes.
pub(crate) struct InputMemory {
    limit: usize,
    recorded: Arc<Semaphore>,
    resident: Arc<Semaphore>,
    unrecorded: Arc<Semaphore>,
    /// For jobs that end before they start, whose inputs are needed once more, for the webhook.
    reloaded: Arc<Semaphore>,
}

/// Where the input of a waiting job is.
#[derive(Debug)]
pub(crate) enum InputLocation {
    /// In memory, of which it holds this share.
    Memory(#[expect(dead_code, reason = "dropping it releases the memory")] MemoryShare),
    /// In the store.
    Store,
}

/// A share of the memory for inputs.
#[derive(Debug, Default)]
pub(crate) struct MemoryShare {
    /// None for a small input.
    _bytes: Option<OwnedSemaphorePermit>,
    /// For a recorded job: one of the places for jobs in memory.
    _place: Option<OwnedSemaphorePermit>,
}

impl InputMemory {
    /// Memory of `limit` bytes for recorded jobs, and as much for each other kind.
    pub(crate) fn new(limit: usize) -> Self {
        // One permit is one byte.
        let limit = limit.clamp(1, u32::MAX as usize);
        let semaphore = || Arc::new(Semaphore::new(limit));
        Self {
            limit,
            recorded: semaphore(),
            resident: Arc::new(Semaphore::new(MAX_RESIDENT)),
            unrecorded: semaphore(),
            reloaded: semaphore(),
        }
    }

    /// Reserves memory for a job that is recorded, or will be.
    pub(crate) fn reserve_recorded(&self, weight: usize) -> InputLocation {
        let Ok(place) = Arc::clone(&self.resident).try_acquire_owned() else {
            return InputLocation::Store;
        };
        Self::reserve(&self.recorded, self.counted(weight)).map_or(InputLocation::Store, |share| {
            InputLocation::Memory(MemoryShare {
                _place: Some(place),
                ..share
            })
        })
    }

    /// Reserves memory for a job that exists in this process only; `None` when there is none.
    pub(crate) fn reserve_unrecorded(&self, weight: usize) -> Option<InputLocation> {
        Self::reserve(&self.unrecorded, self.counted(weight)).map(InputLocation::Memory)
    }

    /// Waits until there is memory for an input that is reloaded.
    pub(crate) async fn reserve_reload(&self, weight: usize) -> InputLocation {
        let bytes = self.counted(weight);
        // The semaphore is never closed, so this always gets a permit.
        let permit = Arc::clone(&self.reloaded).acquire_many_owned(bytes).await;
        InputLocation::Memory(MemoryShare {
            _bytes: permit.ok(),
            _place: None,
        })
    }

    fn reserve(memory: &Arc<Semaphore>, bytes: u32) -> Option<MemoryShare> {
        match bytes {
            0 => Some(MemoryShare::default()),
            bytes => Arc::clone(memory)
                .try_acquire_many_owned(bytes)
                .ok()
                .map(|permit| MemoryShare {
                    _bytes: Some(permit),
                    _place: None,
                }),
        }
    }

    /// The bytes that an input counts. One that is larger than the limit takes all of it.
    fn counted(&self, weight: usize) -> u32 {
        let counted = if weight < UNCOUNTED_BELOW {
            0
        } else {
            weight.min(self.limit)
        };
        u32::try_from(counted).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_reserved_until_it_is_used_up_and_released_on_drop() {
        let memory = InputMemory::new(10_000);
        let first = memory.reserve_recorded(6_000);
        assert!(matches!(first, InputLocation::Memory(_)));
        assert!(
            matches!(memory.reserve_recorded(6_000), InputLocation::Store),
            "it does not fit beside the first"
        );
        assert!(
            matches!(
                memory.reserve_recorded(UNCOUNTED_BELOW - 1),
                InputLocation::Memory(_)
            ),
            "small inputs are not counted"
        );
        drop(first);
        assert!(matches!(
            memory.reserve_recorded(6_000),
            InputLocation::Memory(_)
        ));
    }

    #[tokio::test]
    async fn an_input_above_the_limit_takes_all_of_it() {
        let memory = InputMemory::new(10_000);
        let large = memory
            .reserve_unrecorded(1 << 40)
            .expect("no other job waits");
        assert!(memory.reserve_unrecorded(2_000).is_none());
        assert!(
            matches!(memory.reserve_recorded(2_000), InputLocation::Memory(_)),
            "recorded jobs have memory of their own"
        );
        drop(large);
        assert!(memory.reserve_unrecorded(2_000).is_some());
        memory.reserve_reload(1 << 40).await;
    }
}
