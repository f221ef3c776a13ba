//! The entries of lines that this process works on. They are renewed as long as somebody holds them, so that the
//! queue gives them to nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::queue::{Claim, Queue, QueueName};
use tokio::sync::Notify;

/// What is in hand, of all desks.
#[derive(Default)]
pub(crate) struct ActiveClaims {
    claims: Mutex<HashMap<(QueueName, String), Claim>>,
}

impl ActiveClaims {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<(QueueName, String), Claim>) -> R) -> R {
        f(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes an entry in hand; `released` is told when that is over.
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

    /// What is in hand now.
    pub(crate) fn all(&self) -> Vec<Claim> {
        self.with(|claims| claims.values().cloned().collect())
    }

    /// What is in hand of a line.
    pub(crate) fn of(&self, line: &QueueName) -> Vec<Claim> {
        self.with(|claims| {
            claims
                .values()
                .filter(|claim| claim.line == *line)
                .cloned()
                .collect()
        })
    }
}

/// An entry in hand. One that is dropped without being done stays in the queue: it is found there later, by another
/// server if this one goes.
pub(crate) struct ClaimGuard {
    claims: Arc<ActiveClaims>,
    queue: Arc<dyn Queue>,
    claim: Claim,
    released: Arc<Notify>,
}

impl ClaimGuard {
    /// The job is over, and that is written down.
    pub(crate) async fn ack(self) {
        if let Err(error) = self.queue.ack(&self.claim).await {
            // The entry is found again, and the record says that its job is over.
            tracing::warn!(job = %self.claim.entry.id, %error, "a job that is over could not be taken out of its line");
        }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.claims.with(|claims| claims.remove(&key(&self.claim)));
        self.released.notify_one();
    }
}

fn key(claim: &Claim) -> (QueueName, String) {
    (claim.line.clone(), claim.ticket.clone())
}
