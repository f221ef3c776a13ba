//! Reference counts of blobs. A blob without references may be removed, by one task at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The reference counts of all blobs, by digest. A clone is another handle to the same counts.
#[derive(Clone, Default)]
pub(super) struct BlobRefcounts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    blobs: Mutex<HashMap<String, BlobState>>,
    /// Notified when a removal has ended or failed.
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlobState {
    /// The number of guards. A blob with 0 is to be removed.
    Referenced(usize),
    /// A task removes the blob. A new reference waits for the end of the removal.
    Removing,
}

/// A reference to a blob: keeps it from being removed.
pub(super) struct BlobGuard {
    refcounts: BlobRefcounts,
    digest: String,
}

/// The exclusive right to remove an unreferenced blob. If it is dropped before
/// [`done`](Self::done), a later call may remove the blob.
pub(super) struct BlobRemoval {
    refcounts: BlobRefcounts,
    digest: String,
    done: bool,
}

impl BlobRefcounts {
    /// References a blob, before or after it is written. Waits while the blob is being removed.
    pub(super) async fn acquire(&self, digest: &str) -> BlobGuard {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(guard) = self.try_acquire(digest) {
                return guard;
            }
            changed.await;
        }
    }

    fn try_acquire(&self, digest: &str) -> Option<BlobGuard> {
        let mut blobs = self.blobs();
        match blobs
            .entry(digest.to_owned())
            .or_insert(BlobState::Referenced(0))
        {
            BlobState::Referenced(count) => *count += 1,
            BlobState::Removing => return None,
        }
        Some(BlobGuard {
            refcounts: self.clone(),
            digest: digest.to_owned(),
        })
    }

    /// Registers an existing blob. Without a reference it is to be removed.
    pub(super) fn register(&self, digest: String) {
        self.blobs()
            .entry(digest)
            .or_insert(BlobState::Referenced(0));
    }

    /// All unreferenced blobs, for the caller to remove.
    pub(super) fn take_unreferenced(&self) -> Vec<BlobRemoval> {
        let mut blobs = self.blobs();
        let unreferenced = blobs
            .iter_mut()
            .filter(|(_, state)| **state == BlobState::Referenced(0));
        let take = |(digest, state): (&String, &mut BlobState)| {
            *state = BlobState::Removing;
            BlobRemoval {
                refcounts: self.clone(),
                digest: digest.clone(),
                done: false,
            }
        };
        unreferenced.map(take).collect()
    }

    fn blobs(&self) -> MutexGuard<'_, HashMap<String, BlobState>> {
        self.0.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BlobGuard {
    fn drop(&mut self) {
        if let Some(BlobState::Referenced(count)) = self.refcounts.blobs().get_mut(&self.digest) {
            *count -= 1;
        }
    }
}

impl BlobRemoval {
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Marks the blob as removed.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for BlobRemoval {
    fn drop(&mut self) {
        let mut blobs = self.refcounts.blobs();
        if self.done {
            blobs.remove(&self.digest);
        } else {
            blobs.insert(self.digest.clone(), BlobState::Referenced(0));
        }
        drop(blobs);
        self.refcounts.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_reference_waits_for_the_removal() {
        let refcounts = BlobRefcounts::default();
        let (one, other) = (refcounts.acquire("a").await, refcounts.acquire("a").await);
        drop(one);
        assert!(
            refcounts.take_unreferenced().is_empty(),
            "one guard is left"
        );
        drop(other);
        let removal = refcounts.take_unreferenced().pop().unwrap();
        assert!(
            refcounts.take_unreferenced().is_empty(),
            "only one task removes it"
        );
        assert!(
            tokio::time::timeout(Duration::from_secs(1), refcounts.acquire("a"))
                .await
                .is_err()
        );
        let (held, ()) = tokio::join!(refcounts.acquire("a"), async { removal.done() });
        assert!(refcounts.take_unreferenced().is_empty());
        drop(held);
        assert_eq!(refcounts.take_unreferenced()[0].digest(), "a");
    }

    #[tokio::test]
    async fn registered_blobs_are_removed_unless_referenced() {
        let refcounts = BlobRefcounts::default();
        let _held = refcounts.acquire("a").await;
        refcounts.register("a".to_owned());
        refcounts.register("b".to_owned());
        assert_eq!(
            refcounts
                .take_unreferenced()
                .iter()
                .map(BlobRemoval::digest)
                .collect::<Vec<_>>(),
            ["b"]
        );
    }

    #[tokio::test]
    async fn a_failed_removal_is_retried() {
        let refcounts = BlobRefcounts::default();
        drop(refcounts.acquire("a").await);
        drop(refcounts.take_unreferenced());
        assert_eq!(refcounts.take_unreferenced()[0].digest(), "a");
    }
}
