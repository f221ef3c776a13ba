//! Rate limits in Redis: one value per key, the time until which requests have used up the limit. It expires at
//! that time. The clock of the server decides.

use std::time::Duration;

use async_trait::async_trait;
use redis::{RedisError, Script};
use tidegate_core::rate_counter::{Rate, RateCounter, RateCounterError, RateUse};

use super::connection::{Link, RESPONSE_TIMEOUT};
use super::url::RedisUrl;

/// Counts a request; returns the time that earlier requests have used up. All times are microseconds.
const COUNT: &str = r"
local each, per = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') - now, 0)
if used + each <= per then
  redis.call('SET', KEYS[1], string.format('%.0f', now + used + each), 'PX', math.ceil((used + each) / 1000))
end
return used
";

/// Rate limits in Redis.
pub struct RedisRates {
    link: Link,
    count: Script,
}

impl RedisRates {
    /// Uses this server, and connects when it is first used. Must be called in a Tokio runtime.
    pub fn new(url: &RedisUrl) -> Result<Self, RateCounterError> {
        Ok(Self {
            link: Link::new(url, RESPONSE_TIMEOUT).map_err(failed)?,
            count: Script::new(COUNT),
        })
    }
}

#[async_trait]
impl RateCounter for RedisRates {
    async fn count(&self, key: &str, rate: Rate) -> Result<RateUse, RateCounterError> {
        // Whole microseconds, so that the server decides as this process does.
        let each = micros(rate.each());
        let rate = Rate {
            per: Duration::from_micros(each) * rate.count.max(1),
            ..rate
        };
        let mut linked = self.link.get().await.map_err(failed)?;
        let mut call = self.count.key(format!("limit:{key}"));
        call.arg(each).arg(micros(rate.per));
        let used: Result<u64, RedisError> = call.invoke_async(&mut linked.connection).await;
        match used {
            Ok(used) => Ok(RateUse::after(rate, Duration::from_micros(used))),
            Err(error) => {
                self.link.discard_after(&linked, &error).await;
                Err(failed(error))
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn failed(error: impl std::fmt::Display) -> RateCounterError {
    RateCounterError(error.to_string())
}
