//! Connects a director to the queue.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::Queue;
use tidegate_queue::redis::{RedisOpenError, RedisQueue, RedisQueueConfig, RedisUrls};

use crate::usage_error::UsageError;

/// The pause before the next attempt to connect.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Opens the queue; waits for servers that do not answer.
pub(super) async fn open(urls: &RedisUrls, name: &str) -> anyhow::Result<Arc<dyn Queue>> {
    let mut is_waiting = false;
    loop {
        match RedisQueue::open(RedisQueueConfig::new(urls.clone(), name)).await {
            Ok(queue) => {
                if is_waiting {
                    tracing::info!("connected to Redis");
                }
                return Ok(Arc::new(queue));
            }
            Err(error @ RedisOpenError::Unreachable { .. }) => {
                if !is_waiting {
                    tracing::warn!(%error, "waiting for Redis");
                }
                is_waiting = true;
            }
            Err(error @ RedisOpenError::Unusable { .. }) => {
                return Err(UsageError::new(error.to_string())
                    .hint("check --redis, and the configuration of the server")
                    .into());
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}
