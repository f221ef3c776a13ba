//! Removes the data of old jobs, and old jobs, from the store.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::clock;
use tidegate_core::store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

/// The longest pause between two sweeps.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many jobs one call removes: other writes happen in between.
const BATCH: usize = 500;

/// Removes old jobs, or their data, at intervals.
#[derive(Clone)]
pub(crate) struct RetentionSweep {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) target: RetentionTarget,
    /// How long after the end of a job.
    pub(crate) after: Duration,
}

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionTarget {
    /// Input, output and logs.
    Data,
    /// The whole job.
    Jobs,
}

impl RetentionSweep {
    /// Sweeps until `closing` is cancelled.
    pub(crate) async fn run(self, closing: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL.min(self.after.max(Duration::from_millis(100)))) => {}
                () = closing.cancelled() => return,
            }
            let Ok(before) = clock::now().checked_sub(self.after) else {
                continue;
            };
            if let Err(error) = self.remove_all(before).await {
                tracing::warn!(target = ?self.target, error = %chain(&error), "failed to remove old jobs");
            }
        }
    }

    async fn remove_all(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            let removed = match self.target {
                RetentionTarget::Data => self.store.remove_data(before, BATCH).await?,
                RetentionTarget::Jobs => self.store.forget(before, BATCH).await?,
            };
            if removed < BATCH {
                return Ok(());
            }
        }
    }
}
