//! Who refcounts which content: bytes stay as long as somebody does, and are removed by one at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The contents that are blobs, by their digests. Cloning gives another handle.
#[derive(Clone, Default)]
pub(super) struct BlobRefcounts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    blobs: Mutex<HashMap<String, BlobState>>,
    /// Something has been removed, or is not being removed after all.
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlobState {
    /// So many have it. With none it is to be removed.
    Referenced(usize),
    /// It is being removed; who wants to have it waits until it is gone, and then brings it anew.
    Removing,
}

/// Keeps a content from being removed.
pub(super) struct BlobGuard {
    refcounts: BlobRefcounts,
    digest: String,
}

/// A content that nobody refcounts, to be removed by who has this. Dropped before that was done, it is left to others.
pub(super) struct BlobRemoval {
    refcounts: BlobRefcounts,
    digest: String,
    done: bool,
}

impl BlobRefcounts {
    /// Begins to use a content, whether its bytes are there or come now.
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

    /// There is such a content. Unless somebody refcounts it, it is to be removed.
    pub(super) fn register(&self, digest: String) {
        self.blobs()
            .entry(digest)
            .or_insert(BlobState::Referenced(0));
    }

    /// Everything that nobody refcounts, for who calls to remove.
    pub(super) fn take_unreferenced(&self) -> Vec<BlobRemoval> {
        let mut blobs = self.blobs();
        let unused = blobs
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
        unused.map(take).collect()
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

    /// The bytes are gone.
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
    async fn what_is_being_removed_is_brought_anew() {
        let refcounts = BlobRefcounts::default();
        let (one, other) = (refcounts.acquire("a").await, refcounts.acquire("a").await);
        drop(one);
        assert!(refcounts.take_unreferenced().is_empty(), "somebody has it");
        drop(other);
        let removal = refcounts.take_unreferenced().pop().unwrap();
        assert!(refcounts.take_unreferenced().is_empty(), "one removes it");
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
    async fn what_is_found_goes_unless_somebody_has_it() {
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
    async fn a_removal_that_failed_is_tried_again() {
        let refcounts = BlobRefcounts::default();
        drop(refcounts.acquire("a").await);
        drop(refcounts.take_unreferenced());
        assert_eq!(refcounts.take_unreferenced()[0].digest(), "a");
    }
}
