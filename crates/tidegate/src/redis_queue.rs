//! Opens the queue that the command line asks for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use tidegate_core::JobId;
use tidegate_core::queue::Queue;
use tidegate_core::store::Documents;
use tidegate_queue::MemoryQueue;
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::cli::RedisArgs;
use crate::store_ports::DurableState;
use crate::usage_error::UsageError;

/// The document that identifies a store.
const STORE_ID: (&str, &str) = ("queue", "store_id");

/// The queue of a server with this store; a queue in memory without `--redis`. A queue in Redis only names
/// jobs, so it needs a store.
pub(crate) async fn open(
    args: &RedisArgs,
    max_deliveries: u32,
    state: Option<&DurableState>,
) -> anyhow::Result<Arc<dyn Queue>> {
    let Some(urls) = &args.redis else {
        return Ok(Arc::new(MemoryQueue::default()));
    };
    let Some(state) = state else {
        let message = "--redis needs a data directory or --postgres: the messages in Redis only name the jobs";
        let hint = "give a folder with --data-dir, or omit --redis";
        return Err(UsageError::new(message).hint(hint).into());
    };
    let config = RedisQueueConfig {
        shards: args.queue_shards,
        account_shards: args.account_shards,
        max_deliveries,
        store: Some(store_id(&*state.ports.documents).await?),
        // This process is the only one that ends the jobs of its store.
        deadline_window: None,
        ..RedisQueueConfig::new(urls.clone(), &consumer(&state.name))
    };
    Ok(Arc::new(RedisQueue::open(config).await?))
}

/// The id of the store. The first call chooses it.
async fn store_id(documents: &dyn Documents) -> anyhow::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system provides random bytes");
    let id = JobId::from_random(u128::from_ne_bytes(random));
    let (namespace, name) = STORE_ID;
    let json = Bytes::from(format!("\"{id}\""));
    let stored = documents.put_new(namespace, name, json).await?;
    serde_json::from_slice(&stored).context("the id of the store is not a text")
}

/// The name of the consumer: the same when the server is started again, because only one process at a time
/// can open the store, and different from those of servers on other machines.
fn consumer(store_name: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut hasher = DefaultHasher::new();
    (store_name, host).hash(&mut hasher);
    format!("serve-{host}-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_name_and_others_have_other_names() {
        let names = ["/data/a", "/data/b", "/data/a"].map(consumer);
        assert!(names[0] == names[2] && names[0] != names[1], "{names:?}");
    }
}
