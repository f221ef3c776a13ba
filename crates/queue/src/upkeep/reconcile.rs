//! Pushes the waiting jobs again after the queue lost entries: the server behind it was started empty, or
//! another server took over.

use std::time::Duration;

use tidegate_core::queue::{Queue, UpkeepHandler};

use super::or_default;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, interval: Duration) {
    let mut known = queue.first_epoch().to_owned();
    loop {
        tokio::time::sleep(interval).await;
        // Before the epoch is read: a later one may have been recorded since.
        let Some(complete) = handler.complete_since(&known).await else {
            continue;
        };
        let epoch = or_default("epoch", queue.epoch().await.map(Some));
        let Some(epoch) = epoch.filter(|epoch| *epoch != complete) else {
            continue;
        };
        tracing::warn!("the queue may have lost entries, pushing the waiting jobs again");
        if handler.requeue(&epoch).await {
            known = epoch;
        }
    }
}
