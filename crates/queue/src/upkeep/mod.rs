//! What keeps the lines in order, one loop each: deadlines that come ([`cordon`]), entries whose holder is gone
//! ([`sweep`]), what is left of entries that were struck ([`collect`]), and entries that all of these have missed
//! ([`prune`]). Several processes may run them at once: the queue gives each entry to one of them.

mod collect;
mod cordon;
mod prune;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{Consumer, Queue, QueueError, UpkeepHandler};

/// How often is looked, and what counts as too long.
#[derive(Debug, Clone, Copy)]
pub struct UpkeepConfig {
    /// The longest pause between two looks at deadlines.
    pub cordon_every: Duration,
    /// The pause between two looks for entries whose holder is gone; half of it more or less each time.
    pub sweep_every: Duration,
    /// An entry that was not renewed for so long has lost its holder.
    pub lost_after: Duration,
    /// The pause between two removals of what was struck.
    pub collect_every: Duration,
    /// The pause between two looks at old entries.
    pub prune_every: Duration,
    /// How old they are.
    pub old_after: Duration,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            cordon_every: second,
            sweep_every: 30 * second,
            lost_after: 30 * second,
            collect_every: 30 * second,
            prune_every: 3600 * second,
            old_after: 24 * 3600 * second,
        }
    }
}

/// Keeps the lines in order, for ever.
pub async fn run(
    queue: Arc<dyn Queue>,
    keeper: Arc<dyn UpkeepHandler>,
    consumer: Consumer,
    rules: UpkeepConfig,
) {
    let (queue, keeper) = (&*queue, &*keeper);
    tokio::join!(
        cordon::run(queue, keeper, rules.cordon_every),
        sweep::run(queue, keeper, &consumer, rules),
        collect::run(queue, rules.collect_every),
        prune::run(queue, keeper, rules),
    );
}

/// A look that did not come about is said, and taken again the next time.
fn said<T: Default>(what: &'static str, looked: Result<T, QueueError>) -> T {
    looked.unwrap_or_else(|error| {
        tracing::warn!(%error, what, "the lines could not be looked after");
        T::default()
    })
}
