//! The entries of a line that this process works on. They are renewed as long as somebody holds them, so that the
//! queue gives them to nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::queue::{Claim, Queue};
use tokio::sync::Notify;

/// What is in hand at one desk.
#[derive(Default)]
pub(crate) struct Hands {
    claims: Mutex<HashMap<String, Claim>>,
    /// One has been put down.
    put_down: Notify,
}

impl Hands {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<String, Claim>) -> R) -> R {
        f(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes an entry in hand.
    pub(crate) fn hold(self: &Arc<Self>, queue: Arc<dyn Queue>, claim: Claim) -> Held {
        self.with(|claims| claims.insert(claim.ticket.clone(), claim.clone()));
        Held { hands: Arc::clone(self), queue, claim }
    }

    /// What is in hand now.
    pub(crate) fn all(&self) -> Vec<Claim> {
        self.with(|claims| claims.values().cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|claims| claims.is_empty())
    }

    /// Waits until one is put down; a call that was made before counts.
    pub(crate) async fn put_down(&self) {
        self.put_down.notified().await;
    }
}

/// An entry in hand. Whoever drops it without saying that it is done has lost the job, which the queue finds out.
pub(crate) struct Held {
    hands: Arc<Hands>,
    queue: Arc<dyn Queue>,
    claim: Claim,
}

impl Held {
    /// The job is over, and that is written down.
    pub(crate) async fn done(self) {
        if let Err(error) = self.queue.done(&self.claim).await {
            // The entry is found again, and the record says that its job is over.
            tracing::warn!(job = %self.claim.entry.id, %error, "a job that is over could not be taken out of its line");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hands.with(|claims| claims.remove(&self.claim.ticket));
        self.hands.put_down.notify_one();
    }
}
