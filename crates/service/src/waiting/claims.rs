//! The queue entries that this process works on. The director renews them while their jobs run, so that
//! the queue gives them to no other consumer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::queue::{Claim, Queue, QueueEntry, QueueName};
use tokio::sync::Notify;

/// The claims of this process, of all models.
#[derive(Default)]
pub(crate) struct ActiveClaims {
    claims: Mutex<HashMap<ClaimKey, Claim>>,
}

/// A claim is identified by its queue and its ticket.
type ClaimKey = (QueueName, String);

impl ActiveClaims {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<ClaimKey, Claim>) -> R) -> R {
        f(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a claim; `released` is notified when the guard is dropped.
    pub(crate) fn guard(
        self: &Arc<Self>,
        queue: Arc<dyn Queue>,
        claim: Claim,
        released: Arc<Notify>,
    ) -> ClaimGuard {
        self.with(|claims| claims.insert(key(&claim), claim.clone()));
        ClaimGuard {
            claims: Arc::clone(self),
            queue,
            claim,
            released,
        }
    }

    /// All claims.
    pub(crate) fn all(&self) -> Vec<Claim> {
        self.with(|claims| claims.values().cloned().collect())
    }

    /// The claims on entries of one queue.
    pub(crate) fn of(&self, queue: &QueueName) -> Vec<Claim> {
        self.with(|claims| {
            claims
                .values()
                .filter(|claim| claim.queue == *queue)
                .cloned()
                .collect()
        })
    }
}

/// A claimed queue entry. When it is dropped without an acknowledgement, the entry stays in the queue and
/// is found there later, by another process if this one exits.
pub(crate) struct ClaimGuard {
    claims: Arc<ActiveClaims>,
    queue: Arc<dyn Queue>,
    claim: Claim,
    released: Arc<Notify>,
}

impl ClaimGuard {
    /// The entry that is claimed.
    pub(crate) fn entry(&self) -> &QueueEntry {
        &self.claim.entry
    }

    /// Lets the entry wait again.
    pub(crate) async fn put_back(self) {
        if let Err(error) = self.queue.put_back(&self.claim).await {
            // Upkeep finds the entry again.
            tracing::warn!(job = %self.claim.entry.id, %error, "failed to put queue entry back");
        }
    }

    /// Removes the entry: the end of its job is committed.
    pub(crate) async fn ack(self) {
        if let Err(error) = self.queue.ack(&self.claim).await {
            // Upkeep finds the entry again and reads in the store that its job has ended.
            tracing::warn!(job = %self.claim.entry.id, %error, "failed to acknowledge queue entry");
        }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.claims.with(|claims| claims.remove(&key(&self.claim)));
        self.released.notify_one();
    }
}

fn key(claim: &Claim) -> ClaimKey {
    (claim.queue.clone(), claim.ticket.clone())
}
