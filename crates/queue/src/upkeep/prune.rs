//! Removes old entries whose jobs have ended, in case the other loops missed them. An entry whose job
//! still waits stays, however old it is: only its deadline ends a job.

use jiff::Timestamp;
use tidegate_core::queue::{Queue, UpkeepHandler};

use super::{UpkeepConfig, or_default};

/// The number of entries that are checked in one round.
const BATCH: usize = 100_000;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, config: UpkeepConfig) {
    loop {
        tokio::time::sleep(config.prune_interval).await;
        let Ok(before) = Timestamp::now().checked_sub(config.old_after) else {
            continue;
        };
        for (name, entry) in or_default("old", queue.old(before, BATCH).await) {
            if handler.is_over(&entry).await {
                tracing::warn!(queue = %name, job = %entry.id, "removed queue entry of a job that has ended");
                or_default(
                    "remove",
                    queue.remove(&name, &entry.account, &entry.id).await,
                );
            }
        }
    }
}
