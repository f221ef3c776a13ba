//! Read positions of streams in Redis: one number per key, which expires.

use std::time::Duration;

use async_trait::async_trait;
use redis::{RedisError, Script};
use tidegate_core::read_cursors::{ReadCursorError, ReadCursors};

use super::connection::{Link, RESPONSE_TIMEOUT};
use super::url::RedisUrl;

/// How long a position is kept after the last read.
const TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);

/// Returns the position, and advances it.
const ADVANCE: &str = r"
local position = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) > position then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return position
";

/// Read positions in Redis.
pub struct RedisReadCursors {
    link: Link,
    advance: Script,
}

impl RedisReadCursors {
    /// Uses this server, and connects when it is first used. Must be called in a Tokio runtime.
    pub fn new(url: &RedisUrl) -> Result<Self, ReadCursorError> {
        Ok(Self {
            link: Link::new(url, RESPONSE_TIMEOUT).map_err(failed)?,
            advance: Script::new(ADVANCE),
        })
    }
}

#[async_trait]
impl ReadCursors for RedisReadCursors {
    async fn position(&self, key: &str) -> Result<u64, ReadCursorError> {
        self.advance(key, 0).await
    }

    async fn advance(&self, key: &str, to: u64) -> Result<u64, ReadCursorError> {
        let mut linked = self.link.get().await.map_err(failed)?;
        let mut call = self.advance.key(format!("live:read:{key}"));
        call.arg(to).arg(TIME_TO_LIVE.as_secs());
        let position: Result<u64, RedisError> = call.invoke_async(&mut linked.connection).await;
        match position {
            Ok(position) => Ok(position),
            Err(error) => {
                self.link.discard_after(&linked, &error).await;
                Err(failed(error))
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> ReadCursorError {
    ReadCursorError(error.to_string())
}
