//! How full the queues are, without looking at their messages.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Pipeline;
use tidegate_core::queue::{QueueError, QueueName, QueueStatistics, QueueUsage};

use super::backend::Backend;
use super::keys::DEAD_LETTERS;
use super::queue_servers::QueueServers;

impl QueueServers {
    /// The sums over all servers that answer.
    pub(super) async fn statistics(&self) -> Result<QueueStatistics, QueueError> {
        let mut queues = BTreeMap::new();
        let mut dead_letters = 0;
        let mut last_error = None;
        let mut is_readable = false;
        for backend in &self.backends {
            match self.statistics_of(backend, &mut queues).await {
                Ok(count) => {
                    dead_letters += count;
                    is_readable = true;
                }
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) if !is_readable => Err(error),
            Some(_) | None => Ok(QueueStatistics {
                queues: queues.into_values().collect(),
                dead_letters,
            }),
        }
    }

    /// Adds the queues of one server; returns the number of its dead letters.
    async fn statistics_of(
        &self,
        backend: &Backend,
        queues: &mut BTreeMap<QueueName, QueueUsage>,
    ) -> Result<usize, QueueError> {
        let shards = [self.config.shards.to_string()];
        for name in backend.queues().await? {
            let usage = &self.scripts.usage;
            let (waiting, claimed, age): (usize, usize, i64) =
                backend.on_queue(usage, &name, &shards).await?;
            let known = queues.entry(name.clone()).or_insert_with(|| QueueUsage {
                name,
                depth: Default::default(),
                oldest_wait: None,
            });
            known.depth.waiting += waiting;
            known.depth.claimed += claimed;
            let age = u64::try_from(age).ok().map(Duration::from_millis);
            known.oldest_wait = known.oldest_wait.max(age);
        }
        let mut commands = Pipeline::new();
        commands.cmd("XLEN").arg(DEAD_LETTERS);
        let (count,): (usize,) = backend
            .pipeline(&commands)
            .await
            .map_err(|error| backend.error(&error))?;
        Ok(count)
    }
}
