//! Opens PostgreSQL and Redis for the processes of a cluster. They may start in any order: a server that
//! does not answer yet is waited for.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::chain;
use tidegate_queue::redis::{
    RedisLive, RedisOpenError, RedisQueue, RedisQueueConfig, RedisRates, RedisReadCursors,
    RedisUrls,
};
use tidegate_store::{DatabaseUse, PostgresOptions, PostgresStore};

use crate::cli::{ApiArgs, RedisArgs};
use crate::postgres_setup;
use crate::usage_error::UsageError;

/// The pause between two attempts to reach a server.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the processes of a cluster share.
pub(crate) struct ClusterBackends {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) queue: Arc<RedisQueue>,
    pub(crate) live: Arc<RedisLive>,
    pub(crate) rates: Arc<RedisRates>,
    pub(crate) cursors: Arc<RedisReadCursors>,
}

/// Opens the servers of an API process.
pub(crate) async fn open_backends(
    args: &ApiArgs,
    consumer: &str,
) -> anyhow::Result<ClusterBackends> {
    let urls = redis_urls(&args.redis)?;
    let url = postgres_setup::url(args.cluster.postgres.as_ref()).ok_or_else(|| {
        UsageError::new("a cluster needs a PostgreSQL database")
            .hint("give its address with --postgres postgres://USER@HOST/DATABASE, or set TIDEGATE_POSTGRES")
    })?;
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let store = postgres_setup::open(&url, &options).await?;
    warn_without_standby(&store).await;
    let config = RedisQueueConfig {
        shards: args.redis.queue_shards,
        account_shards: args.redis.account_shards,
        max_deliveries: args.upkeep.max_deliveries,
        // However long the cluster was down: no other loop ends a job that waits.
        deadline_window: None,
        ..RedisQueueConfig::new(urls.clone(), consumer)
    };
    Ok(ClusterBackends {
        store: Arc::new(store),
        queue: Arc::new(open_queue(config).await?),
        live: Arc::new(open_live(urls)?),
        rates: Arc::new(open_rates(urls)?),
        cursors: Arc::new(open_cursors(urls)?),
    })
}

/// Says that jobs can be lost with the machine of PostgreSQL.
async fn warn_without_standby(store: &PostgresStore) {
    match store.has_synchronous_standby().await {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "PostgreSQL has no synchronous standby (synchronous_standby_names is empty): if its machine is lost, accepted jobs and results can be lost with it"
        ),
        Err(error) => {
            tracing::debug!(error = %chain(&error), "failed to read synchronous_standby_names");
        }
    }
}

/// The servers of `--redis`, which a cluster needs.
fn redis_urls(args: &RedisArgs) -> Result<&RedisUrls, UsageError> {
    args.redis.as_ref().ok_or_else(|| {
        UsageError::new("a cluster needs a Redis server")
            .hint("give its address with --redis redis://HOST:PORT, or set TIDEGATE_REDIS")
    })
}

/// Opens the queues; waits for the servers.
pub(crate) async fn open_queue(config: RedisQueueConfig) -> anyhow::Result<RedisQueue> {
    let mut is_waiting = false;
    loop {
        match RedisQueue::open(config.clone()).await {
            Ok(queue) => {
                if is_waiting {
                    tracing::info!("connected to Redis");
                }
                return Ok(queue);
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

/// The rate limits of all API processes, in the first of the servers.
fn open_rates(urls: &RedisUrls) -> anyhow::Result<RedisRates> {
    let first = urls.all().first().context("--redis has no address")?;
    RedisRates::new(first).context("failed to use --redis for rate limits")
}

/// The read positions of streams, in the first of the servers.
fn open_cursors(urls: &RedisUrls) -> anyhow::Result<RedisReadCursors> {
    let first = urls.all().first().context("--redis has no address")?;
    RedisReadCursors::new(first).context("failed to use --redis for read positions")
}

/// The live events, in the first of the servers.
pub(crate) fn open_live(urls: &RedisUrls) -> anyhow::Result<RedisLive> {
    let first = urls.all().first().context("--redis has no address")?;
    RedisLive::new(first).context("failed to use --redis for live events")
}
