//! Forgetting jobs that were over too long ago, so that the store does not grow for ever.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::store::Store;
use tokio_util::sync::CancellationToken;

/// The longest pause between two looks.
const EVERY: Duration = Duration::from_secs(60);
/// How many are forgotten in one go: others write in between.
const BATCH: usize = 500;

/// Forgets, now and then, what was over more than `keep_for` ago. Ends with `closing`.
pub(crate) async fn forget(store: Arc<dyn Store>, keep_for: Duration, closing: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY.min(keep_for.max(Duration::from_millis(100)))) => {}
            () = closing.cancelled() => return,
        }
        let Ok(before) = Timestamp::now().checked_sub(keep_for) else { continue };
        loop {
            match store.forget(before, BATCH).await {
                Ok(BATCH) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "old jobs could not be forgotten");
                    break;
                }
            }
        }
    }
}
