//! Frees what is left of removed entries: `Queue::remove` and `Queue::settle` may only mark an entry.

use std::time::Duration;

use tidegate_core::queue::Queue;

use super::or_default;

pub(super) async fn run(queue: &dyn Queue, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let count = or_default("collect", queue.collect().await);
        if count > 0 {
            tracing::debug!(count, "collected removed queue entries");
        }
    }
}
