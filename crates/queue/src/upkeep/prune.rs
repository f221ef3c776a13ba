//! Removes entries that are older than jobs may wait, in case the other loops missed them, and consumers
//! that have taken nothing for long. The handler ends the job of an old entry first, or keeps the entry.

use tidegate_core::queue::{FoundEntry, Queue, UpkeepHandler};

use super::{UpkeepConfig, or_default};

/// The number of entries that are checked in one round.
const BATCH: usize = 100_000;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, config: UpkeepConfig) {
    loop {
        tokio::time::sleep(config.prune_interval).await;
        prune(queue, handler, config).await;
        let consumers = queue.remove_stale_consumers(config.consumer_age).await;
        let count = or_default("remove_stale_consumers", consumers);
        if count > 0 {
            tracing::info!(count, "removed stale consumers of the queues");
        }
    }
}

async fn prune(queue: &dyn Queue, handler: &dyn UpkeepHandler, config: UpkeepConfig) {
    let Some(age) = config.prune_age else {
        return;
    };
    let mut obsolete: Vec<FoundEntry> = Vec::new();
    for found in or_default("old", queue.old(age, BATCH).await) {
        if handler.prune(&found.entry).await {
            tracing::warn!(queue = %found.queue, job = %found.entry.id, "removed old queue entry");
            obsolete.push(found);
        }
    }
    or_default("remove_old", queue.remove_old(&obsolete).await);
}
