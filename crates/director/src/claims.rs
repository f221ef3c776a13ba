//! The messages that the director has taken and not acknowledged. They are renewed until their jobs have
//! ended, also while the director drains, so that no other director gets them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::director_metrics::DirectorMetrics;
use tidegate_core::queue::{Claim, Queue};

/// The pause after the queue did not accept an acknowledgement.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How often an acknowledgement is retried. Afterwards the upkeep of the queue finds the message and sees
/// that its job has ended.
const MAX_TRIES: u32 = 60;

/// The claims that are renewed.
pub(crate) struct HeldClaims {
    queue: Arc<dyn Queue>,
    metrics: Arc<DirectorMetrics>,
    claims: Mutex<BTreeMap<u64, Claim>>,
    next: AtomicU64,
}

impl HeldClaims {
    pub(crate) fn new(queue: Arc<dyn Queue>, metrics: Arc<DirectorMetrics>) -> Arc<Self> {
        Arc::new(Self {
            queue,
            metrics,
            claims: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<u64, Claim>) -> R) -> R {
        f(&mut self.claims.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Renews a claim until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, claim: Claim) -> HeldClaim {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.metrics.taken.inc();
        self.with(|claims| claims.insert(key, claim.clone()));
        HeldClaim {
            claims: Arc::clone(self),
            key,
            claim,
        }
    }

    /// The number of claims.
    pub(crate) fn count(&self) -> usize {
        self.with(|claims| claims.len())
    }

    /// Renews the claims, for ever.
    pub(crate) async fn renew_all(&self, interval: Duration) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(interval).await;
            let claims: Vec<Claim> = self.with(|claims| claims.values().cloned().collect());
            if claims.is_empty() {
                continue;
            }
            match self.queue.renew(&claims).await {
                Ok(_) => is_failing = false,
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "failed to renew messages, retrying");
                    }
                    is_failing = true;
                }
            }
        }
    }
}

/// A message of this director. When it is dropped without an acknowledgement, the message is no longer
/// renewed, and the upkeep of the queue gives it to another director if its job is open.
pub(crate) struct HeldClaim {
    claims: Arc<HeldClaims>,
    key: u64,
    pub(crate) claim: Claim,
}

impl HeldClaim {
    /// Removes the message: its job has ended.
    pub(crate) async fn ack(self) {
        for _ in 0..MAX_TRIES {
            match self.claims.queue.ack(&self.claim).await {
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(job = %self.claim.entry.id, %error, "failed to acknowledge message, retrying");
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        tracing::warn!(job = %self.claim.entry.id, "failed to acknowledge message, the upkeep of the queue removes it");
    }

    /// Returns the message to the queue: its job did not start here.
    pub(crate) async fn put_back(self) {
        self.claims.metrics.returned.inc();
        if let Err(error) = self.claims.queue.put_back(&self.claim).await {
            tracing::warn!(job = %self.claim.entry.id, %error, "failed to put message back, it is found when it is no longer renewed");
        }
    }

    /// Stops to renew the message.
    pub(crate) fn stop_renewing(&self) {
        self.claims.with(|claims| claims.remove(&self.key));
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        self.stop_renewing();
    }
}
