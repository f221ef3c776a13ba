//! The loops that keep the queues consistent: enforce deadlines ([`deadlines`]), recover entries whose
//! consumer is gone ([`sweep`]), free what is left of removed entries ([`collect`]), remove entries that all
//! of these have missed ([`prune`]), and push jobs again whose entries were lost ([`reconcile`], [`recheck`]). Several
//! processes may run them at the same time: an entry is lost to one of them, and all other operations can
//! be repeated.

mod collect;
mod deadlines;
mod prune;
mod recheck;
mod reconcile;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Queue, QueueError, UpkeepHandler};

/// The intervals and time limits of the loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpkeepConfig {
    /// The longest pause between two checks of the deadlines.
    pub deadline_interval: Duration,
    /// The mean pause between two searches for entries whose consumer is gone; the actual pause varies
    /// by half of it.
    pub sweep_interval: Duration,
    /// A claim that was not renewed for this long has lost its consumer.
    pub sweep_idle: Duration,
    /// How often an entry may be handed out without a lease of its job.
    pub max_deliveries: u32,
    /// The pause between two collections of removed entries.
    pub collect_interval: Duration,
    /// The pause between two checks of old entries, and of consumers.
    pub prune_interval: Duration,
    /// The age of an old entry; entries never get old without it.
    pub prune_age: Option<Duration>,
    /// A consumer that has taken nothing for this long is forgotten.
    pub consumer_age: Duration,
    /// The pause between two checks whether the queue has lost entries.
    pub reconcile_interval: Duration,
    /// The pause between two rounds in which jobs are pushed again that have waited for this time.
    pub recheck_interval: Duration,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            deadline_interval: second,
            sweep_interval: 30 * second,
            sweep_idle: 30 * second,
            max_deliveries: 3,
            collect_interval: 30 * second,
            prune_interval: 3600 * second,
            prune_age: Some(24 * 3600 * second),
            consumer_age: 24 * 3600 * second,
            reconcile_interval: 5 * second,
            recheck_interval: 3600 * second,
        }
    }
}

/// Runs all loops; never returns.
pub async fn run(queue: Arc<dyn Queue>, handler: Arc<dyn UpkeepHandler>, config: UpkeepConfig) {
    let (queue, handler) = (&*queue, &*handler);
    tokio::join!(
        deadlines::run(queue, handler, config.deadline_interval),
        sweep::run(queue, handler, config),
        collect::run(queue, config.collect_interval),
        prune::run(queue, handler, config),
        reconcile::run(queue, handler, config.reconcile_interval),
        recheck::run(handler, config.recheck_interval),
    );
}

/// Logs a failed call and returns the default value; the loop calls the queue again in its next round.
fn or_default<T: Default>(operation: &'static str, result: Result<T, QueueError>) -> T {
    result.unwrap_or_else(|error| {
        tracing::warn!(%error, operation, "queue upkeep failed, retrying");
        T::default()
    })
}
