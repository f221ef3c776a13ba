//! What upkeep needs of the queue: deadlines, lost claims, old messages, garbage, consumers. All of it may
//! run in several processes at once.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use redis::Value;
use tidegate_core::JobId;
use tidegate_core::queue::{Claim, FoundEntry, Priority, QueueEntry, QueueError, QueueName};

use super::backend::Backend;
use super::keys::account_name;
use super::message;
use super::queue_servers::QueueServers;
use super::reply::{self, Delivered};

/// How many messages are removed in one step.
const REMOVED_AT_ONCE: usize = 50;
/// How many messages of the garbage are collected in one step.
const COLLECTED_AT_ONCE: usize = 500;
/// Deadlines that passed this long ago are forgotten.
const DEADLINES_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Where a found entry is.
struct Place {
    backend: usize,
    shard: u16,
    message: String,
}

impl Place {
    fn of(found: &FoundEntry) -> Option<Self> {
        let mut parts = found.ticket.splitn(3, ' ');
        Some(Self {
            backend: parts.next()?.parse().ok()?,
            shard: parts.next()?.parse().ok()?,
            message: parts.next()?.to_owned(),
        })
    }

    fn ticket(&self) -> String {
        format!("{} {} {}", self.backend, self.shard, self.message)
    }
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// The results of all servers. One that fails is skipped, so that the others are not affected; if all fail,
/// the last error is returned.
fn of_readable<T>(results: Vec<Result<Vec<T>, QueueError>>) -> Result<Vec<T>, QueueError> {
    let (mut all, mut is_readable, mut last_error) = (Vec::new(), false, None);
    for result in results {
        match result {
            Ok(found) => {
                is_readable = true;
                all.extend(found);
            }
            Err(error) => last_error = Some(error),
        }
    }
    match last_error {
        Some(error) if !is_readable => Err(error),
        Some(error) => {
            tracing::warn!(%error, "failed to read one of the servers of the queue");
            Ok(all)
        }
        None => Ok(all),
    }
}

impl QueueServers {
    pub(super) async fn overdue(&self, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        let window = self.config.deadline_window.map(milliseconds);
        let arguments = [window.unwrap_or_default(), limit.to_string()];
        let of_server = async |backend: &Backend| {
            let members: Vec<(String, f64)> =
                backend.on_all(&self.scripts.overdue, &arguments).await?;
            let found = members
                .iter()
                .filter_map(|(member, at)| overdue_entry(backend.index, member, *at));
            Ok(found.collect())
        };
        of_readable(join_all(self.backends.iter().map(of_server)).await)
    }

    pub(super) async fn settle(&self, overdue: &FoundEntry) -> Result<(), QueueError> {
        let Some((place, backend)) = self.place(overdue) else {
            return Ok(());
        };
        let arguments = [
            place.shard.to_string(),
            place.message,
            account_name(&overdue.entry.account).to_owned(),
            overdue.entry.id.to_string(),
        ];
        let settle = &self.scripts.settle;
        let _: i64 = backend.on_queue(settle, &overdue.queue, &arguments).await?;
        Ok(())
    }

    fn place(&self, found: &FoundEntry) -> Option<(Place, &Backend)> {
        let place = Place::of(found)?;
        let backend = self.backends.get(place.backend)?;
        Some((place, backend))
    }

    pub(super) async fn lost(
        &self,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let of_server = async |backend: &Backend| {
            let mut claims = Vec::new();
            for queue in backend.queues().await? {
                let left = limit.saturating_sub(claims.len());
                if left == 0 {
                    break;
                }
                for delivered in self.lost_messages(backend, &queue, idle, left).await? {
                    claims.extend(self.lost_claim(backend.index, &queue, delivered).await?);
                }
            }
            Ok(claims)
        };
        of_readable(join_all(self.backends.iter().map(of_server)).await)
    }

    async fn lost_messages(
        &self,
        backend: &Backend,
        queue: &QueueName,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Delivered>, QueueError> {
        let arguments = [
            self.config.shards.to_string(),
            self.upkeep_consumer(),
            milliseconds(idle),
            limit.to_string(),
        ];
        let lost: Vec<Vec<Value>> = backend
            .on_queue(&self.scripts.lost, queue, &arguments)
            .await?;
        let lost: Result<Vec<Delivered>, _> = lost.into_iter().map(reply::delivered).collect();
        lost.map_err(|error| backend.error(&error.into()))
    }

    pub(super) async fn collect(&self) -> Result<usize, QueueError> {
        let of_server = async |backend: &Backend| {
            let arguments = [COLLECTED_AT_ONCE.to_string(), milliseconds(DEADLINES_KEPT)];
            let mut total = 0;
            loop {
                let collect = &self.scripts.collect;
                let (seen, count): (usize, usize) = backend.on_all(collect, &arguments).await?;
                total += count;
                if seen < COLLECTED_AT_ONCE {
                    break;
                }
            }
            for queue in backend.queues().await? {
                let shards = [self.config.shards.to_string()];
                let shrink = &self.scripts.shrink;
                let _: i64 = backend.on_queue(shrink, &queue, &shards).await?;
            }
            Ok(vec![total])
        };
        let counts = of_readable(join_all(self.backends.iter().map(of_server)).await)?;
        Ok(counts.iter().sum())
    }

    pub(super) async fn old(
        &self,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<FoundEntry>, QueueError> {
        let arguments = [
            self.config.shards.to_string(),
            milliseconds(age),
            limit.to_string(),
        ];
        let of_server = async |backend: &Backend| {
            let mut old = Vec::new();
            for queue in backend.queues().await? {
                let messages: Vec<(u16, String, Vec<Vec<u8>>)> = backend
                    .on_queue(&self.scripts.old, &queue, &arguments)
                    .await?;
                for (shard, message, fields) in messages {
                    let pushed_at = message_time(&message);
                    let place = Place {
                        backend: backend.index,
                        shard,
                        message,
                    };
                    // A message that names no job becomes a dead letter when it is taken.
                    if let Ok(entry) = message::decode(&fields) {
                        let found = FoundEntry {
                            queue: queue.clone(),
                            entry,
                            ticket: place.ticket(),
                        };
                        old.push((pushed_at, found));
                    }
                }
            }
            Ok(old)
        };
        let mut old = of_readable(join_all(self.backends.iter().map(of_server)).await)?;
        old.sort_by_key(|(pushed_at, _)| *pushed_at);
        Ok(old
            .into_iter()
            .take(limit)
            .map(|(_, found)| found)
            .collect())
    }

    pub(super) async fn remove_old(&self, old: &[FoundEntry]) -> Result<usize, QueueError> {
        let mut places: Vec<(Place, &FoundEntry)> = old
            .iter()
            .filter_map(|found| Some((Place::of(found)?, found)))
            .collect();
        places.sort_by(|(a, first), (b, second)| {
            (a.backend, &first.queue, a.shard).cmp(&(b.backend, &second.queue, b.shard))
        });
        let same_stream = |a: &(Place, &FoundEntry), b: &(Place, &FoundEntry)| {
            (a.0.backend, &a.1.queue, a.0.shard) == (b.0.backend, &b.1.queue, b.0.shard)
        };
        let mut count = 0;
        for stream in places.chunk_by(same_stream) {
            for chunk in stream.chunks(REMOVED_AT_ONCE) {
                let (place, found) = &chunk[0];
                let mut arguments = vec![place.shard.to_string()];
                for (place, found) in chunk {
                    let account = account_name(&found.entry.account).to_owned();
                    let id = found.entry.id.to_string();
                    arguments.extend([place.message.clone(), account, id]);
                }
                let removed: usize = self.backends[place.backend]
                    .on_queue(&self.scripts.remove_old, &found.queue, &arguments)
                    .await?;
                count += removed;
            }
        }
        Ok(count)
    }

    pub(super) async fn remove_stale_consumers(&self, age: Duration) -> Result<usize, QueueError> {
        let arguments = [self.config.shards.to_string(), milliseconds(age)];
        let of_server = async |backend: &Backend| {
            let mut total: usize = 0;
            for queue in backend.queues().await? {
                let script = &self.scripts.stale_consumers;
                let count: usize = backend.on_queue(script, &queue, &arguments).await?;
                total += count;
            }
            Ok(vec![total])
        };
        let counts = of_readable(join_all(self.backends.iter().map(of_server)).await)?;
        Ok(counts.iter().sum())
    }

    /// The queues of all servers.
    pub(super) async fn queues(&self) -> Result<Vec<QueueName>, QueueError> {
        let of_server = async |backend: &Backend| backend.queues().await;
        let mut names = of_readable(join_all(self.backends.iter().map(of_server)).await)?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// The entry of a member of `meta:deadlines`. The message may be gone: the deadline holds all the same.
fn overdue_entry(backend: usize, member: &str, at: f64) -> Option<FoundEntry> {
    let (queue, shard, message, account, id) = reply::deadline_member(member)?;
    let place = Place {
        backend,
        shard,
        message: message.to_owned(),
    };
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds since 1970")]
    let deadline = Timestamp::from_millisecond(at as i64).ok();
    Some(FoundEntry {
        queue,
        entry: QueueEntry {
            account: message::parse_account(account)?,
            id: JobId::parse(id).ok()?,
            priority: Priority::Normal,
            deadline,
            details: None,
        },
        ticket: place.ticket(),
    })
}

/// When a message was pushed, in milliseconds since 1970, and its number in that millisecond.
fn message_time(message: &str) -> (u64, u64) {
    let (time, number) = message.split_once('-').unwrap_or((message, "0"));
    (
        time.parse().unwrap_or_default(),
        number.parse().unwrap_or_default(),
    )
}
