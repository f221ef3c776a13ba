//! Removing what was over too long ago, so that the store does not grow for ever.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

/// The longest pause between two looks.
const EVERY: Duration = Duration::from_secs(60);
/// How many are removed in one go: others write in between.
const BATCH: usize = 500;

/// What is removed, and when.
#[derive(Clone)]
pub(crate) struct RetentionSweep {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) what: RetentionTarget,
    /// This long after the end of a job.
    pub(crate) after: Duration,
}

/// What is removed of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionTarget {
    /// Input, output and logs.
    Data,
    /// Everything.
    Jobs,
}

impl RetentionSweep {
    /// Removes, now and then. Ends with `closing`.
    pub(crate) async fn run(self, closing: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(EVERY.min(self.after.max(Duration::from_millis(100)))) => {}
                () = closing.cancelled() => return,
            }
            let Ok(before) = Timestamp::now().checked_sub(self.after) else {
                continue;
            };
            if let Err(error) = self.remove_all(before).await {
                tracing::warn!(what = ?self.what, error = %chain(&error), "what is too old could not be removed");
            }
        }
    }

    async fn remove_all(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            let removed = match self.what {
                RetentionTarget::Data => self.store.remove_data(before, BATCH).await?,
                RetentionTarget::Jobs => self.store.forget(before, BATCH).await?,
            };
            if removed < BATCH {
                return Ok(());
            }
        }
    }
}
