//! Removes entries that are a day old and whose jobs are over: whatever the other loops may have missed. One whose
//! job still waits is left alone, however old it is: only its deadline ends a job.

use jiff::Timestamp;
use tidegate_core::queue::{Queue, UpkeepHandler};

use super::{UpkeepConfig, said};

/// How many are looked at each time.
const BATCH: usize = 100_000;

pub(super) async fn run(queue: &dyn Queue, keeper: &dyn UpkeepHandler, rules: UpkeepConfig) {
    loop {
        tokio::time::sleep(rules.prune_every).await;
        let Ok(before) = Timestamp::now().checked_sub(rules.old_after) else {
            continue;
        };
        for (line, entry) in said("old entries", queue.old(before, BATCH).await) {
            if keeper.is_over(&entry).await {
                tracing::warn!(%line, job = %entry.id, "a job that is over was still in its line");
                said(
                    "old entries",
                    queue.remove(&line, &entry.account, &entry.id).await,
                );
            }
        }
    }
}
