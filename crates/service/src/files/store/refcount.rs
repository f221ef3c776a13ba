//! Who uses which content: bytes stay as long as somebody does, and are removed by one at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The contents that are known, by their digests. Cloning gives another handle.
#[derive(Clone, Default)]
pub(super) struct BlobRefcounts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<HashMap<String, BlobRefs>>,
    /// Something has been removed, or is not being removed after all.
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlobRefs {
    /// So many have it. With none it is to be removed.
    By(usize),
    /// It is being removed; who wants to have it waits until it is gone, and then brings it anew.
    Leaving,
}

/// Keeps a content from being removed.
pub(super) struct Hold {
    uses: BlobRefcounts,
    digest: String,
}

/// A content that nobody uses, to be removed by who has this. Dropped before that was done, it is left to others.
pub(super) struct Removal {
    uses: BlobRefcounts,
    digest: String,
    done: bool,
}

impl BlobRefcounts {
    /// Begins to use a content, whether its bytes are there or come now.
    pub(super) async fn hold(&self, digest: &str) -> Hold {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(hold) = self.try_hold(digest) {
                return hold;
            }
            changed.await;
        }
    }

    fn try_hold(&self, digest: &str) -> Option<Hold> {
        let mut known = self.known();
        match known.entry(digest.to_owned()).or_insert(BlobRefs::By(0)) {
            BlobRefs::By(count) => *count += 1,
            BlobRefs::Leaving => return None,
        }
        Some(Hold {
            uses: self.clone(),
            digest: digest.to_owned(),
        })
    }

    /// There is such a content. Unless somebody uses it, it is to be removed.
    pub(super) fn note(&self, digest: String) {
        self.known().entry(digest).or_insert(BlobRefs::By(0));
    }

    /// Everything that nobody uses, for who calls to remove.
    pub(super) fn unused(&self) -> Vec<Removal> {
        let mut known = self.known();
        let unused = known
            .iter_mut()
            .filter(|(_, uses)| **uses == BlobRefs::By(0));
        let take = |(digest, uses): (&String, &mut BlobRefs)| {
            *uses = BlobRefs::Leaving;
            Removal {
                uses: self.clone(),
                digest: digest.clone(),
                done: false,
            }
        };
        unused.map(take).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, BlobRefs>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(BlobRefs::By(count)) = self.uses.known().get_mut(&self.digest) {
            *count -= 1;
        }
    }
}

impl Removal {
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// The bytes are gone.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        let mut known = self.uses.known();
        if self.done {
            known.remove(&self.digest);
        } else {
            known.insert(self.digest.clone(), BlobRefs::By(0));
        }
        drop(known);
        self.uses.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_being_removed_is_brought_anew() {
        let uses = BlobRefcounts::default();
        let (one, other) = (uses.hold("a").await, uses.hold("a").await);
        drop(one);
        assert!(uses.unused().is_empty(), "somebody has it");
        drop(other);
        let removal = uses.unused().pop().unwrap();
        assert!(uses.unused().is_empty(), "one removes it");
        assert!(
            tokio::time::timeout(Duration::from_secs(1), uses.hold("a"))
                .await
                .is_err()
        );
        let (held, ()) = tokio::join!(uses.hold("a"), async { removal.done() });
        assert!(uses.unused().is_empty());
        drop(held);
        assert_eq!(uses.unused()[0].digest(), "a");
    }

    #[tokio::test]
    async fn what_is_found_goes_unless_somebody_has_it() {
        let uses = BlobRefcounts::default();
        let _held = uses.hold("a").await;
        uses.note("a".to_owned());
        uses.note("b".to_owned());
        assert_eq!(
            uses.unused()
                .iter()
                .map(Removal::digest)
                .collect::<Vec<_>>(),
            ["b"]
        );
    }

    #[tokio::test]
    async fn a_removal_that_failed_is_tried_again() {
        let uses = BlobRefcounts::default();
        drop(uses.hold("a").await);
        drop(uses.unused());
        assert_eq!(uses.unused()[0].digest(), "a");
    }
}
