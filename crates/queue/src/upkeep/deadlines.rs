//! Ends jobs whose deadline has passed, whether they wait or run. An entry is settled only after its job
//! was ended, so that a crash in between loses no deadline.

use std::time::Duration;

use tidegate_core::queue::{Queue, UpkeepHandler};
use tidegate_core::{clock, planted};

use super::or_default;

/// The number of entries that are read in one call.
const BATCH: usize = 1000;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, interval: Duration) {
    loop {
        end_overdue(queue, handler).await;
        let next = or_default("next_deadline", queue.next_deadline().await);
        let until_next =
            next.and_then(|at| Duration::try_from(at.duration_since(clock::now())).ok());
        // An entry that could not be settled is overdue already.
        let pause = until_next.filter(|pause| !pause.is_zero());
        tokio::time::sleep(pause.map_or(interval, |pause| pause.min(interval))).await;
    }
}

async fn end_overdue(queue: &dyn Queue, handler: &dyn UpkeepHandler) {
    loop {
        let overdue = or_default("overdue", queue.overdue(BATCH).await);
        planted!(
            LostDeadline,
            for found in &overdue {
                queue.settle(found).await.ok();
            }
        );
        let mut settled = 0;
        for found in &overdue {
            tracing::debug!(queue = %found.queue, job = %found.entry.id, "deadline of job passed");
            if handler.overdue(&found.entry).await && queue.settle(found).await.is_ok() {
                settled += 1;
            }
        }
        if settled < BATCH {
            return;
        }
    }
}
