//! Ends jobs whose deadline has come, whether somebody works on them or not.

use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Queue, UpkeepHandler};

use super::said;

pub(super) async fn run(queue: &dyn Queue, keeper: &dyn UpkeepHandler, every: Duration) {
    loop {
        for (line, entry) in said("deadlines", queue.overdue(Timestamp::now()).await) {
            tracing::debug!(%line, job = %entry.id, "the deadline of a job has come");
            keeper.overdue(&entry).await;
        }
        let next = said("deadlines", queue.next_deadline().await);
        let until_next =
            next.and_then(|at| Duration::try_from(at.duration_since(Timestamp::now())).ok());
        tokio::time::sleep(until_next.map_or(every, |pause| pause.min(every))).await;
    }
}
