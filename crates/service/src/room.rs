//! How much memory those who wait in a line take.
//!
//! A job that is written down waits in memory as long as all who wait fit there; otherwise only its name does, and what
//! it needs to run is read from the store when its turn comes. Of those that are not written down, no more are taken
//! than fit.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What takes less than this is not counted: the rest of a job is as large.
const SMALL: usize = 1024;

/// The memory for the inputs of those who wait, of all desks, in bytes.
pub(crate) struct Memory {
    limit: usize,
    written: Arc<Semaphore>,
    unwritten: Arc<Semaphore>,
    /// For those that are over before their turn, and need their inputs once more, for the message about it.
    recalled: Arc<Semaphore>,
}

/// Where the input of a job that waits is.
#[derive(Debug)]
pub(crate) enum Room {
    /// In memory, of which it has this part; none if it is small.
    Memory(
        #[expect(dead_code, reason = "dropping it gives the memory back")]
        Option<OwnedSemaphorePermit>,
    ),
    /// In the store.
    Store,
}

impl Memory {
    /// So many bytes for those that are written down, and as many for each other kind.
    pub(crate) fn new(limit: usize) -> Self {
        // One number of a permit is one byte.
        let limit = limit.clamp(1, u32::MAX as usize);
        let semaphore = || Arc::new(Semaphore::new(limit));
        Self {
            limit,
            written: semaphore(),
            unwritten: semaphore(),
            recalled: semaphore(),
        }
    }

    /// A place for a job that is written down, or will be.
    pub(crate) fn for_written(&self, weight: usize) -> Room {
        Self::part(&self.written, self.counted(weight)).unwrap_or(Room::Store)
    }

    /// A place for a job that is known to this process only; nothing when there is none.
    pub(crate) fn for_unwritten(&self, weight: usize) -> Option<Room> {
        Self::part(&self.unwritten, self.counted(weight))
    }

    /// Waits until there is memory for a job that was not in it.
    pub(crate) async fn for_recalled(&self, weight: usize) -> Room {
        // It is never closed.
        Room::Memory(
            Arc::clone(&self.recalled)
                .acquire_many_owned(self.counted(weight))
                .await
                .ok(),
        )
    }

    fn part(of: &Arc<Semaphore>, bytes: u32) -> Option<Room> {
        match bytes {
            0 => Some(Room::Memory(None)),
            bytes => Arc::clone(of)
                .try_acquire_many_owned(bytes)
                .ok()
                .map(|part| Room::Memory(Some(part))),
        }
    }

    /// One that alone is too large has all of it.
    fn counted(&self, weight: usize) -> u32 {
        let counted = if weight < SMALL {
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
    async fn memory_is_given_until_it_is_used_up_and_comes_back() {
        let memory = Memory::new(10_000);
        let first = memory.for_written(6_000);
        assert!(matches!(first, Room::Memory(_)));
        assert!(
            matches!(memory.for_written(6_000), Room::Store),
            "it does not fit beside the first"
        );
        assert!(
            matches!(memory.for_written(SMALL - 1), Room::Memory(_)),
            "what is small is not counted"
        );
        drop(first);
        assert!(matches!(memory.for_written(6_000), Room::Memory(_)));
    }

    #[tokio::test]
    async fn one_that_is_too_large_alone_has_all_of_it() {
        let memory = Memory::new(10_000);
        let large = memory.for_unwritten(1 << 40).expect("nobody else is there");
        assert!(memory.for_unwritten(2_000).is_none());
        assert!(
            matches!(memory.for_written(2_000), Room::Memory(_)),
            "those that are written down have memory of their own"
        );
        drop(large);
        assert!(memory.for_unwritten(2_000).is_some());
        memory.for_recalled(1 << 40).await;
    }
}
