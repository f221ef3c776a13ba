//! The conformance suite.

use std::sync::Arc;

use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::redis_server::RedisServer;

async fn open() -> (RedisServer, Arc<RedisQueue>) {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    (server, queue)
}

tidegate_queue::conformance!(open);

/// The suite with two servers: messages are pushed to the first and read from both.
mod two_servers {
    use super::*;

    async fn open() -> ((RedisServer, RedisServer), Arc<RedisQueue>) {
        let servers = (RedisServer::start(), RedisServer::start());
        let urls = format!("{},{}", servers.0.url(), servers.1.url());
        let config = RedisQueueConfig::new(urls.parse().expect("addresses"), "one");
        let queue = RedisQueue::open(config).await.expect("the servers run");
        (servers, Arc::new(queue))
    }

    tidegate_queue::conformance!(open);
}
