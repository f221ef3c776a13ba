//! Removes what is left of entries that were struck: striking only says that one is not handed out any more.

use std::time::Duration;

use tidegate_core::queue::Queue;

use super::said;

pub(super) async fn run(queue: &dyn Queue, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let count = said("what was struck", queue.collect().await);
        if count > 0 {
            tracing::debug!(
                count,
                "removed what was left of jobs that were over before their turn"
            );
        }
    }
}
