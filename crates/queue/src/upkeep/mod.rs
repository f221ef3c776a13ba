//! The loops that keep the queues consistent: enforce deadlines ([`deadlines`]), recover entries whose
//! consumer is gone ([`sweep`]), free the memory of removed entries ([`collect`]), and remove entries
//! that all of these have missed ([`prune`]). Several processes may run them at the same time: the queue
//! returns each entry to one of them.

mod collect;
mod deadlines;
mod prune;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Consumer, Queue, QueueError, UpkeepHandler};

/// The intervals and time limits of the loops.
#[derive(Debug, Clone, Copy)]
pub struct UpkeepConfig {
    /// The longest pause between two checks of the deadlines.
    pub deadline_interval: Duration,
    /// The mean pause between two searches for entries whose consumer is gone; the actual pause varies
    /// by half of it.
    pub sweep_interval: Duration,
    /// A claim that was not renewed for this long has lost its consumer.
    pub lost_after: Duration,
    /// The pause between two collections of removed entries.
    pub collect_interval: Duration,
    /// The pause between two checks of old entries.
    pub prune_interval: Duration,
    /// The age of an old entry.
    pub old_after: Duration,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            deadline_interval: second,
            sweep_interval: 30 * second,
            lost_after: 30 * second,
            collect_interval: 30 * second,
            prune_interval: 3600 * second,
            old_after: 24 * 3600 * second,
        }
    }
}

/// Runs all loops; never returns.
pub async fn run(
    queue: Arc<dyn Queue>,
    handler: Arc<dyn UpkeepHandler>,
    consumer: Consumer,
    config: UpkeepConfig,
) {
    let (queue, handler) = (&*queue, &*handler);
    tokio::join!(
        deadlines::run(queue, handler, config.deadline_interval),
        sweep::run(queue, handler, &consumer, config),
        collect::run(queue, config.collect_interval),
        prune::run(queue, handler, config),
    );
}

/// Logs a failed call and returns the default value; the loop calls the queue again in its next round.
fn or_default<T: Default>(operation: &'static str, result: Result<T, QueueError>) -> T {
    result.unwrap_or_else(|error| {
        tracing::warn!(%error, operation, "queue upkeep failed, retrying");
        T::default()
    })
}
