//! One Redis server of a queue.

use redis::{FromRedisValue, Pipeline, RedisError, Script};
use tidegate_core::queue::{QueueError, QueueName};

use super::connection::{Link, RESPONSE_TIMEOUT};
use super::keys::QUEUES;
use super::url::RedisUrl;

/// A server, and the connection for everything that does not block.
pub(super) struct Backend {
    /// The position among the servers of the queue.
    pub(super) index: usize,
    pub(super) link: Link,
}

impl Backend {
    pub(super) fn new(index: usize, url: &RedisUrl) -> Result<Self, RedisError> {
        let link = Link::new(url, RESPONSE_TIMEOUT)?;
        Ok(Self { index, link })
    }

    /// Runs a script on a queue.
    pub(super) async fn on_queue<T: FromRedisValue>(
        &self,
        script: &Script,
        queue: &QueueName,
        arguments: &[String],
    ) -> Result<T, QueueError> {
        self.script(script, &[queue.as_str()], arguments).await
    }

    /// Runs a script that concerns all queues.
    pub(super) async fn on_all<T: FromRedisValue>(
        &self,
        script: &Script,
        arguments: &[String],
    ) -> Result<T, QueueError> {
        self.script(script, &[], arguments).await
    }

    async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[String],
    ) -> Result<T, QueueError> {
        let mut invocation = script.prepare_invoke();
        invocation.key(keys).arg(arguments);
        let mut is_retry = false;
        loop {
            let mut linked = self.link.get().await.map_err(|error| self.error(&error))?;
            let error = match invocation.invoke_async(&mut linked.connection).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let discarded = self.link.discard_after(&linked, &error).await;
            // The server may have closed the connection long ago. Every script can be repeated.
            if is_retry || !discarded || error.is_timeout() {
                return Err(self.error(&error));
            }
            is_retry = true;
        }
    }

    /// Runs commands in one round trip.
    pub(super) async fn pipeline<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, RedisError> {
        let mut is_retry = false;
        loop {
            let mut linked = self.link.get().await?;
            let error = match commands.query_async(&mut linked.connection).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let discarded = self.link.discard_after(&linked, &error).await;
            if is_retry || !discarded || error.is_timeout() {
                return Err(error);
            }
            is_retry = true;
        }
    }

    /// The queues that this server has.
    pub(super) async fn queues(&self) -> Result<Vec<QueueName>, QueueError> {
        let mut commands = Pipeline::new();
        commands.cmd("HKEYS").arg(QUEUES);
        let (names,): (Vec<String>,) = self
            .pipeline(&commands)
            .await
            .map_err(|error| self.error(&error))?;
        Ok(names.iter().map(|name| QueueName::new(name)).collect())
    }

    /// The error with the address of the server.
    pub(super) fn error(&self, error: &RedisError) -> QueueError {
        QueueError(format!("{}: {error}", self.link.url()))
    }
}
