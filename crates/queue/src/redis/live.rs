//! Live events in Redis. The events of an attempt are a stream with a length limit, whose entries are
//! numbered by their offset; a hash says which attempt is the last and how many events it has. Both expire.
//! The keys of a job have one hash tag, so that they are on one node of a Redis Cluster.

use std::time::Duration;

use async_trait::async_trait;
use redis::{FromRedisValue, RedisError, Script, ScriptInvocation};
use tidegate_core::leases::JobRef;
use tidegate_core::live::{Live, LiveBatch, LiveError, LiveEvent, LivePosition, WakeReason};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use super::connection::{Link, RESPONSE_TIMEOUT};
use super::subscriptions::{ChannelMessage, Subscriptions};
use super::url::RedisUrl;

/// How many events of an attempt are kept.
const MAX_EVENTS: usize = 65_536;
/// How long the events are kept after the last one. After the end of the job the store has its output.
const TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);
/// How many events one read returns.
const READ_COUNT: usize = 1000;

/// Adds events; returns the offset of the next one. An event that is not the next one is ignored.
const PUBLISH: &str = r"
local attempt, offset = tonumber(ARGV[1]), tonumber(ARGV[2])
local last = tonumber(redis.call('HGET', KEYS[1], 'attempt') or '0')
if attempt < last then
  return offset + #ARGV - 5
end
if attempt > last then
  redis.call('HSET', KEYS[1], 'attempt', attempt, 'next', 0)
  redis.call('DEL', KEYS[2])
end
local next = tonumber(redis.call('HGET', KEYS[1], 'next') or '0')
for i = 6, #ARGV do
  if offset + i - 6 == next then
    next = next + 1
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], next .. '-0', 'e', ARGV[i])
  end
end
redis.call('HSET', KEYS[1], 'next', next)
redis.call('EXPIRE', KEYS[1], ARGV[4])
redis.call('EXPIRE', KEYS[2], ARGV[4])
redis.call('PUBLISH', ARGV[5], 'events')
return next
";

/// The last attempt and its events after an offset, if the attempt is the given one, else all of them.
const READ: &str = r"
local last = redis.call('HGET', KEYS[1], 'attempt')
if not last then
  return false
end
local after = '0'
if last == ARGV[1] then
  after = ARGV[2]
end
return {last, redis.call('XRANGE', KEYS[2] .. last, '(' .. after .. '-0', '+', 'COUNT', ARGV[3])}
";

/// Live events in Redis.
pub struct RedisLive {
    link: Link,
    subscriptions: Subscriptions,
    wakes: Mutex<mpsc::UnboundedReceiver<(JobRef, WakeReason)>>,
    stops: Mutex<mpsc::UnboundedReceiver<JobRef>>,
    /// Stopped when it is dropped.
    _tasks: JoinSet<()>,
    publish: Script,
    read: Script,
}

impl RedisLive {
    /// Uses this server, and connects when it is first used. Must be called in a Tokio runtime.
    pub fn new(url: &RedisUrl) -> Result<Self, LiveError> {
        let link = Link::new(url, RESPONSE_TIMEOUT).map_err(failed)?;
        let (subscriptions, messages) = Subscriptions::open(url.connector().map_err(failed)?);
        let ((wake, wakes), (stop, stops)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut tasks = JoinSet::new();
        tasks.spawn(route(messages, wake, stop));
        Ok(Self {
            link,
            subscriptions,
            wakes: Mutex::new(wakes),
            stops: Mutex::new(stops),
            _tasks: tasks,
            publish: Script::new(PUBLISH),
            read: Script::new(READ),
        })
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, LiveError> {
        let mut linked = self.link.get().await.map_err(failed)?;
        let result = call.invoke_async(&mut linked.connection).await;
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                self.link.discard_after(&linked, &error).await;
                Err(failed(error))
            }
        }
    }

    async fn send(&self, channel: String, payload: &str) -> Result<(), LiveError> {
        let mut linked = self.link.get().await.map_err(failed)?;
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(payload);
        let sent: Result<u64, RedisError> = command.query_async(&mut linked.connection).await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) => {
                self.link.discard_after(&linked, &error).await;
                Err(failed(error))
            }
        }
    }
}

/// Passes messages to those that wait for wake-ups and for requests to stop.
async fn route(
    mut messages: mpsc::UnboundedReceiver<ChannelMessage>,
    wake: mpsc::UnboundedSender<(JobRef, WakeReason)>,
    stop: mpsc::UnboundedSender<JobRef>,
) {
    while let Some(ChannelMessage { channel, payload }) = messages.recv().await {
        if let Some(job) = channel.strip_prefix(WAKE_PREFIX) {
            let reason = match payload.as_str() {
                "events" => WakeReason::Events,
                _ => WakeReason::Ended,
            };
            if let Ok(job) = serde_json::from_str(job) {
                wake.send((job, reason)).ok();
            }
        } else if let Ok(job) = serde_json::from_str(&payload) {
            stop.send(job).ok();
        }
    }
}

/// The beginning of the channels of jobs.
const WAKE_PREFIX: &str = "live:wake:";

fn text(job: &JobRef) -> String {
    serde_json::to_string(job).expect("a job serializes")
}

fn wake_channel(job: &JobRef) -> String {
    format!("{WAKE_PREFIX}{}", text(job))
}

fn stop_channel(holder: &str) -> String {
    format!("live:stop:{holder}")
}

/// The hash of a job, and the beginning of the keys of its streams.
fn keys(job: &JobRef) -> (String, String) {
    // The text begins with a brace, so the hash tag is the part up to the first closing one.
    let key = format!("live:{}", text(job));
    let streams = format!("{key}:");
    (key, streams)
}

fn failed(error: impl std::fmt::Display) -> LiveError {
    LiveError(error.to_string())
}

#[async_trait]
impl Live for RedisLive {
    async fn publish(&self, job: &JobRef, batch: LiveBatch) -> Result<u64, LiveError> {
        let (key, streams) = keys(job);
        let mut call = self.publish.key(key);
        call.key(format!("{streams}{}", batch.attempt))
            .arg(batch.attempt)
            .arg(batch.offset)
            .arg(MAX_EVENTS)
            .arg(TIME_TO_LIVE.as_secs())
            .arg(wake_channel(job));
        for event in &batch.events {
            call.arg(serde_json::to_string(event).map_err(failed)?);
        }
        self.invoke(&call).await
    }

    async fn read(
        &self,
        job: &JobRef,
        after: LivePosition,
    ) -> Result<Option<LiveBatch>, LiveError> {
        /// The number of an entry, and its fields.
        type Entry = (String, Vec<String>);
        let (key, streams) = keys(job);
        let mut call = self.read.key(key);
        call.key(streams)
            .arg(after.attempt)
            .arg(after.offset)
            .arg(READ_COUNT);
        let found: Option<(u32, Vec<Entry>)> = self.invoke(&call).await?;
        let Some((attempt, entries)) = found else {
            return Ok(None);
        };
        let Some((first, _)) = entries.first() else {
            return Ok(None);
        };
        let number: u64 = first
            .split('-')
            .next()
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| failed(format!("unexpected entry `{first}`")))?;
        let events: Result<Vec<LiveEvent>, _> = entries
            .iter()
            .filter_map(|(_, fields)| fields.get(1))
            .map(|event| serde_json::from_str(event))
            .collect();
        Ok(Some(LiveBatch {
            attempt,
            offset: number - 1,
            events: events.map_err(failed)?,
        }))
    }

    async fn wake(&self, job: &JobRef, reason: WakeReason) -> Result<(), LiveError> {
        let payload = match reason {
            WakeReason::Events => "events",
            WakeReason::Ended => "ended",
        };
        self.send(wake_channel(job), payload).await
    }

    async fn subscribe(&self, job: &JobRef) -> Result<(), LiveError> {
        self.subscriptions.subscribe(wake_channel(job));
        Ok(())
    }

    async fn unsubscribe(&self, job: &JobRef) -> Result<(), LiveError> {
        self.subscriptions.unsubscribe(wake_channel(job));
        Ok(())
    }

    async fn next_wake(&self) -> (JobRef, WakeReason) {
        match self.wakes.lock().await.recv().await {
            Some(wake) => wake,
            None => std::future::pending().await,
        }
    }

    async fn request_stop(&self, holder: &str, job: &JobRef) -> Result<(), LiveError> {
        self.send(stop_channel(holder), &text(job)).await
    }

    async fn stop_requested(&self, holder: &str) -> JobRef {
        self.subscriptions.subscribe(stop_channel(holder));
        match self.stops.lock().await.recv().await {
            Some(job) => job,
            None => std::future::pending().await,
        }
    }
}
