//! [`RedisQueue`]: queues in Redis Streams, which outlive the processes and are shared by them.
//!
//! A queue is a number of streams, its shards, each with the consumer group `director`. An account has a
//! subset of the shards; while it has messages it stays on one of them, which keeps them in order. Every
//! step that touches several keys is a script ([`scripts`]); reading is done by one task per queue
//! ([`fetcher`]). With several servers, messages are pushed to the first and read from all.

mod backend;
mod connection;
mod dead_letters;
mod fetcher;
mod keys;
mod live;
mod message;
mod queue_servers;
mod rates;
mod read_cursors;
mod reply;
mod scripts;
mod server_check;
mod statistics;
mod subscriptions;
mod unacked;
mod upkeep;
mod url;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::queue::{
    Claim, DeadLetter, EntryPlace, FoundEntry, PutBackResult, Queue, QueueDepth, QueueEntry,
    QueueError, QueueName, QueueStatistics, TakeOptions,
};
use tidegate_core::{Account, JobId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::backend::Backend;
use self::fetcher::{FetchRequest, Fetcher};
use self::keys::account_name;
pub use self::live::RedisLive;
use self::queue_servers::{DeliveryCount, QueueServers};
pub use self::rates::RedisRates;
pub use self::read_cursors::RedisReadCursors;
use self::scripts::Scripts;
pub use self::server_check::RedisOpenError;
use self::unacked::{ClaimTicket, Unacked};
pub use self::url::{InvalidRedisUrl, RedisUrl, RedisUrls};

/// How many callers may wait for a fetcher; more wait for a place.
const WAITING_CALLERS: usize = 1024;
/// How often `wait_for_more_than` looks for messages that other processes push.
const POLL: Duration = Duration::from_secs(1);

/// The settings of a queue in Redis.
#[derive(Debug, Clone)]
pub struct RedisQueueConfig {
    /// The servers.
    pub urls: RedisUrls,
    /// The name of this process among the consumers. A process that is started again under the same name
    /// gets the messages that it had.
    pub consumer: String,
    /// The number of shards of a queue. If it is lowered, the shards above it are emptied first.
    pub shards: u16,
    /// How many of the shards an account uses.
    pub account_shards: u16,
    /// How often a message may be handed out without success, before only upkeep handles it.
    pub max_deliveries: u32,
    /// Identifies the store that has the jobs of the queue. A server that holds the jobs of another store is
    /// refused, because messages of unknown jobs are removed.
    pub store: Option<String>,
    /// Deadlines that passed longer ago are left to the store; all are reported without it.
    pub deadline_window: Option<Duration>,
}

impl RedisQueueConfig {
    /// The default settings.
    pub fn new(urls: RedisUrls, consumer: &str) -> Self {
        Self {
            urls,
            consumer: consumer.to_owned(),
            shards: 8,
            account_shards: 3,
            max_deliveries: 3,
            store: None,
            deadline_window: Some(Duration::from_secs(10)),
        }
    }
}

/// Queues in Redis.
pub struct RedisQueue {
    shared: Arc<QueueServers>,
    queues: Mutex<HashMap<QueueName, Arc<QueueState>>>,
    tasks: TaskTracker,
    first_epoch: String,
}

/// What a process keeps for a queue that it uses.
struct QueueState {
    /// Notified when this process pushes a message or puts one back.
    pushed: Notify,
    requests: mpsc::Sender<FetchRequest>,
}

impl RedisQueue {
    /// Connects to the servers and checks them. All must answer.
    pub async fn open(config: RedisQueueConfig) -> Result<Self, RedisOpenError> {
        let mut backends = Vec::new();
        for (index, url) in config.urls.all().iter().enumerate() {
            let backend = Backend::new(index, url).map_err(|error| RedisOpenError::Unusable {
                url: url.to_string(),
                reason: error.to_string(),
            })?;
            server_check::check(&backend).await?;
            if let Some(store) = &config.store {
                server_check::claim(&backend, store).await?;
            }
            backends.push(backend);
        }
        let epoch = server_check::epoch(&backends[0]).await;
        let first_epoch = epoch.map_err(|error| RedisOpenError::Unreachable {
            url: backends[0].link.url().to_string(),
            reason: error.0,
        })?;
        Ok(Self {
            shared: Arc::new(QueueServers {
                config,
                backends,
                scripts: Scripts::new(),
                unacked: Unacked::default(),
            }),
            queues: Mutex::default(),
            tasks: TaskTracker::new(),
            first_epoch,
        })
    }

    /// The first server, which takes pushes.
    fn first(&self) -> &Backend {
        &self.shared.backends[0]
    }

    /// The state of a queue; the first caller starts its fetcher.
    fn state(&self, queue: &QueueName) -> Result<Arc<QueueState>, QueueError> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = queues.get(queue) {
            return Ok(Arc::clone(state));
        }
        let fetcher = Fetcher::new(Arc::clone(&self.shared), queue.clone())?;
        let (requests, incoming) = mpsc::channel(WAITING_CALLERS);
        self.tasks.spawn(fetcher.run(incoming));
        let state = Arc::new(QueueState {
            pushed: Notify::new(),
            requests,
        });
        queues.insert(queue.clone(), Arc::clone(&state));
        Ok(state)
    }
}

#[async_trait]
impl Queue for RedisQueue {
    async fn push(
        &self,
        queue: &QueueName,
        entry: QueueEntry,
    ) -> Result<Option<EntryPlace>, QueueError> {
        let shared = &self.shared;
        let is_held = shared.unacked.has_job(queue, &entry.account, &entry.id);
        let mut arguments = vec![
            shared.config.shards.to_string(),
            shared.subset(queue, &entry.account),
            account_name(&entry.account).to_owned(),
            entry.id.to_string(),
            shared.config.consumer.clone(),
            u8::from(is_held).to_string(),
        ];
        arguments.extend(message::encode(&entry));
        let (shard, message, _): (u16, String, i64) = self
            .first()
            .on_queue(&shared.scripts.push, queue, &arguments)
            .await?;
        self.state(queue)?.pushed.notify_waiters();
        Ok(Some(EntryPlace {
            stream: keys::stream(queue, shard),
            message: message.into(),
        }))
    }

    async fn wait_for_more_than(
        &self,
        queue: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError> {
        let state = self.state(queue)?;
        loop {
            let notified = state.pushed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let waiting = self.depth(queue).await?.waiting;
            if waiting > more_than {
                return Ok(waiting);
            }
            tokio::time::timeout(POLL, notified).await.ok();
        }
    }

    async fn take(
        &self,
        queue: &QueueName,
        options: TakeOptions,
    ) -> Result<Option<Claim>, QueueError> {
        let (reply, taken) = oneshot::channel();
        let request = FetchRequest {
            options,
            until: Instant::now() + options.timeout,
            reply,
        };
        let stopped = || QueueError("the reader of the queue has stopped".to_owned());
        let state = self.state(queue)?;
        state.requests.send(request).await.map_err(|_| stopped())?;
        taken.await.map_err(|_| stopped())?
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, QueueError> {
        self.shared.renew(&claims.iter().collect::<Vec<_>>()).await
    }

    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError> {
        self.shared.ack(claim).await
    }

    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError> {
        let by_upkeep = ClaimTicket::of(claim)
            .is_some_and(|ticket| ticket.consumer == self.shared.upkeep_consumer());
        let count = if by_upkeep {
            DeliveryCount::Keep
        } else {
            DeliveryCount::Restore
        };
        self.shared.put_back(claim, count).await?;
        self.state(&claim.queue)?.pushed.notify_waiters();
        Ok(())
    }

    async fn put_back_job(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<PutBackResult, QueueError> {
        let arguments = [account_name(account).to_owned(), id.to_string()];
        for backend in &self.shared.backends {
            let script = &self.shared.scripts.put_back_job;
            match backend.on_queue::<i64>(script, queue, &arguments).await? {
                0 => {}
                1 => return Ok(PutBackResult::Waiting),
                _ => {
                    self.state(queue)?.pushed.notify_waiters();
                    return Ok(PutBackResult::PutBack);
                }
            }
        }
        Ok(PutBackResult::NoEntry)
    }

    async fn remove(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError> {
        let arguments = [account_name(account).to_owned(), id.to_string()];
        for backend in &self.shared.backends {
            let remove = &self.shared.scripts.remove;
            let count: i64 = backend.on_queue(remove, queue, &arguments).await?;
            if count > 0 {
                break;
            }
        }
        Ok(())
    }

    async fn overdue(&self, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        self.shared.overdue(limit).await
    }

    async fn settle(&self, overdue: &FoundEntry) -> Result<(), QueueError> {
        self.shared.settle(overdue).await
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError> {
        // The clock of the server decides, so callers look again after their interval.
        Ok(None)
    }

    async fn lost(&self, idle: Duration, limit: usize) -> Result<Vec<Claim>, QueueError> {
        self.shared.lost(idle, limit).await
    }

    async fn collect(&self) -> Result<usize, QueueError> {
        self.shared.collect().await
    }

    async fn old(&self, age: Duration, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        self.shared.old(age, limit).await
    }

    async fn remove_old(&self, old: &[FoundEntry]) -> Result<usize, QueueError> {
        self.shared.remove_old(old).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<QueueDepth, QueueError> {
        let shards = [self.shared.config.shards.to_string()];
        let mut depth = QueueDepth::default();
        let mut last_error = None;
        let mut is_readable = false;
        for backend in &self.shared.backends {
            let script = &self.shared.scripts.depth;
            match backend.on_queue(script, queue, &shards).await {
                Ok((waiting, claimed)) => {
                    let (waiting, claimed): (usize, usize) = (waiting, claimed);
                    depth.waiting += waiting;
                    depth.claimed += claimed;
                    is_readable = true;
                }
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) if !is_readable => Err(error),
            Some(_) | None => Ok(depth),
        }
    }

    async fn statistics(&self) -> Result<QueueStatistics, QueueError> {
        self.shared.statistics().await
    }

    async fn queues(&self) -> Result<Vec<QueueName>, QueueError> {
        self.shared.queues().await
    }

    async fn bury(&self, claim: &Claim, reason: &str) -> Result<bool, QueueError> {
        match self.shared.held_ticket(claim) {
            Some(ticket) => self.shared.bury(&ticket, &claim.queue, reason).await,
            None => Ok(false),
        }
    }

    async fn dead_letters(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        self.shared.dead_letters(after, limit).await
    }

    async fn replay_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        let letter = self.shared.dead_letter(id).await?;
        let Some((queue, entry)) = letter.and_then(|letter| Some((letter.queue, letter.entry?)))
        else {
            return Ok(false);
        };
        // Pushed first, so that a failure in between loses nothing. A job is in a queue once.
        self.push(&queue, entry).await?;
        self.shared.drop_dead_letter(id).await
    }

    async fn drop_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        self.shared.drop_dead_letter(id).await
    }

    async fn remove_stale_consumers(&self, age: Duration) -> Result<usize, QueueError> {
        self.shared.remove_stale_consumers(age).await
    }

    async fn epoch(&self) -> Result<String, QueueError> {
        server_check::epoch(self.first()).await
    }

    fn first_epoch(&self) -> &str {
        &self.first_epoch
    }

    fn is_shared(&self) -> bool {
        true
    }
}
