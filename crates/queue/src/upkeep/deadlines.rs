//! Ends jobs whose deadline has passed, whether they wait or run.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Queue, UpkeepHandler};

use super::or_default;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, interval: Duration) {
    loop {
        for (name, entry) in or_default("overdue", queue.overdue(Timestamp::now()).await) {
            tracing::debug!(queue = %name, job = %entry.id, "deadline of job passed");
            handler.overdue(&entry).await;
        }
        let next = or_default("next_deadline", queue.next_deadline().await);
        let until_next =
            next.and_then(|at| Duration::try_from(at.duration_since(Timestamp::now())).ok());
        tokio::time::sleep(until_next.map_or(interval, |pause| pause.min(interval))).await;
    }
}
