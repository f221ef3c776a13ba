//! Pushes jobs again that have waited for long, in case their entries were deleted by other means, which does
//! not change the epoch of the queue.

use std::time::Duration;

use tidegate_core::queue::UpkeepHandler;

pub(super) async fn run(handler: &dyn UpkeepHandler, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        handler.recheck(interval).await;
    }
}
