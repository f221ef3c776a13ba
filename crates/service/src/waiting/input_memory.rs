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
pub(crate) struct InputMemory {
    limit: usize,
    written: Arc<Semaphore>,
    unwritten: Arc<Semaphore>,
    /// For those that are over before their turn, and need their inputs once more, for the message about it.
    recalled: Arc<Semaphore>,
}

/// Where the input of a job that waits is.
#[derive(Debug)]
pub(crate) enum InputPlace {
    /// In memory, of which it has this part; none if it is small.
    Memory(
        #[expect(dead_code, reason = "dropping it gives the memory back")]
        Option<OwnedSemaphorePermit>,
    ),
    /// In the store.
    Store,
}

impl InputMemory {
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
    pub(crate) fn reserve_recorded(&self, weight: usize) -> InputPlace {
        Self::part(&self.written, self.counted(weight)).unwrap_or(InputPlace::Store)
    }

    /// A place for a job that is known to this process only; nothing when there is none.
    pub(crate) fn reserve_unrecorded(&self, weight: usize) -> Option<InputPlace> {
        Self::part(&self.unwritten, self.counted(weight))
    }

    /// Waits until there is memory for a job that was not in it.
    pub(crate) async fn reserve_reload(&self, weight: usize) -> InputPlace {
        // It is never closed.
        InputPlace::Memory(
            Arc::clone(&self.recalled)
                .acquire_many_owned(self.counted(weight))
                .await
                .ok(),
        )
    }

    fn part(of: &Arc<Semaphore>, bytes: u32) -> Option<InputPlace> {
        match bytes {
            0 => Some(InputPlace::Memory(None)),
            bytes => Arc::clone(of)
                .try_acquire_many_owned(bytes)
                .ok()
                .map(|part| InputPlace::Memory(Some(part))),
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
        let memory = InputMemory::new(10_000);
        let first = memory.reserve_recorded(6_000);
        assert!(matches!(first, InputPlace::Memory(_)));
        assert!(
            matches!(memory.reserve_recorded(6_000), InputPlace::Store),
            "it does not fit beside the first"
        );
        assert!(
            matches!(memory.reserve_recorded(SMALL - 1), InputPlace::Memory(_)),
            "what is small is not counted"
        );
        drop(first);
        assert!(matches!(
            memory.reserve_recorded(6_000),
            InputPlace::Memory(_)
        ));
    }

    #[tokio::test]
    async fn one_that_is_too_large_alone_has_all_of_it() {
        let memory = InputMemory::new(10_000);
        let large = memory
            .reserve_unrecorded(1 << 40)
            .expect("nobody else is there");
        assert!(memory.reserve_unrecorded(2_000).is_none());
        assert!(
            matches!(memory.reserve_recorded(2_000), InputPlace::Memory(_)),
            "those that are written down have memory of their own"
        );
        drop(large);
        assert!(memory.reserve_unrecorded(2_000).is_some());
        memory.reserve_reload(1 << 40).await;
    }
}
