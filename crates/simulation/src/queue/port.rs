//! The port of the queue, over a connection that takes time and fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::queue::{
    Claim, DeadLetter, EntryPlace, FoundEntry, PutBackResult, Queue, QueueDepth, QueueEntry,
    QueueError, QueueName, QueueStatistics, TakeOptions,
};
use tidegate_core::{Account, JobId};
use tokio::time::Instant;

use super::server::{DeliveredEntry, MessagePlace, QueueServer};
use super::shard::MessageId;
use crate::link::ServerLink;

/// How often a message may be handed out before only upkeep handles it.
const MAX_DELIVERIES: u32 = 3;
/// The pause between two looks at a queue without messages.
const POLL: Duration = Duration::from_secs(1);

/// The connection of one process to the queues.
pub struct QueueClient {
    server: Arc<QueueServer>,
    link: ServerLink,
    consumer: Arc<str>,
    upkeep: Arc<str>,
    first_epoch: String,
    local: Mutex<LocalState>,
}

#[derive(Default)]
struct LocalState {
    /// The messages that this process has, with the number of their claim.
    unacked: BTreeMap<MessagePlace, (u64, JobId)>,
    last_number: u64,
    next_shard: usize,
    last_shard: Option<usize>,
    fetchers: BTreeMap<QueueName, Arc<tokio::sync::Mutex<Fetcher>>>,
}

/// Takes the messages of one queue, one after the other, as the fetcher of `tidegate_queue::redis` does:
/// a message whose delivery is on its way would look like one that the process does not know.
#[derive(Default)]
struct Fetcher {
    /// Whether the process knows all messages that it has. Not so at its start, and after a lost reply.
    is_recovered: bool,
}

/// The ticket of a claim.
struct Ticket {
    place: MessagePlace,
    number: u64,
    consumer: Arc<str>,
}

impl QueueClient {
    /// Connects a process to the queues, under a name that stays the same when it is started again.
    pub fn new(server: Arc<QueueServer>, link: ServerLink, consumer: &str) -> Self {
        Self {
            first_epoch: server.epoch(),
            server,
            link,
            consumer: consumer.into(),
            upkeep: format!("{consumer}:upkeep").into(),
            local: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LocalState> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<T>(&self, operation: impl FnOnce(&QueueServer) -> T) -> Result<T, QueueError> {
        let called = self.link.call(|| operation(&self.server)).await;
        called.map_err(|_| QueueError("no reply of the simulated queue".to_owned()))
    }

    fn claim(&self, delivered: DeliveredEntry, number: u64, consumer: &str) -> Claim {
        let DeliveredEntry {
            place,
            entry,
            deliveries,
        } = delivered;
        let (time, message) = place.id;
        Claim {
            stream: format!("{}:s{}", place.queue, place.shard).into(),
            ticket: format!("{} {time} {message} {number} {consumer}", place.shard),
            queue: place.queue,
            entry,
            moved: true,
            deliveries,
        }
    }

    /// The ticket of a claim, unless a later claim of this process has its message.
    fn held(&self, claim: &Claim) -> Option<Ticket> {
        let ticket = ticket(&claim.ticket, &claim.queue)?;
        let local = self.lock();
        let known = local.unacked.get(&ticket.place);
        let is_upkeep = ticket.number == 0;
        let is_held = match known {
            Some((number, _)) => *number == ticket.number,
            None => is_upkeep,
        };
        is_held.then_some(ticket)
    }

    fn forget(&self, ticket: &Ticket) {
        let mut local = self.lock();
        if local
            .unacked
            .get(&ticket.place)
            .is_some_and(|(number, _)| *number == ticket.number)
        {
            local.unacked.remove(&ticket.place);
        }
    }

    async fn take_now(
        &self,
        queue: &QueueName,
        options: TakeOptions,
    ) -> Result<Option<Claim>, QueueError> {
        let fetcher = Arc::clone(self.lock().fetchers.entry(queue.clone()).or_default());
        let mut fetcher = fetcher.lock().await;
        if !fetcher.is_recovered {
            let known = self.known(queue);
            let recover = |server: &QueueServer| {
                server.recover(queue, &self.consumer, &known, MAX_DELIVERIES)
            };
            self.call(recover).await?;
        }
        let first = self.first_shard(options);
        // If the reply is lost, the message may be delivered all the same.
        fetcher.is_recovered = false;
        let delivered = self
            .call(|server| server.take(queue, &self.consumer, first))
            .await?;
        fetcher.is_recovered = true;
        Ok(delivered.map(|delivered| self.taken(delivered)))
    }

    /// The messages of a queue that this process has and knows.
    fn known(&self, queue: &QueueName) -> BTreeSet<(usize, MessageId)> {
        let local = self.lock();
        let own = local.unacked.keys().filter(|place| place.queue == *queue);
        own.map(|place| (place.shard, place.id)).collect()
    }

    /// The shard to look at first.
    fn first_shard(&self, options: TakeOptions) -> usize {
        let mut local = self.lock();
        if let Some(last) = local.last_shard.filter(|_| options.prefer_same_stream) {
            return last;
        }
        local.next_shard = local.next_shard.wrapping_add(1);
        local.next_shard
    }

    fn taken(&self, delivered: DeliveredEntry) -> Claim {
        let mut local = self.lock();
        local.last_number += 1;
        let (number, place) = (local.last_number, delivered.place.clone());
        let moved = local.last_shard.replace(place.shard) != Some(place.shard);
        let job = delivered.entry.id.clone();
        local.unacked.insert(place, (number, job));
        drop(local);
        Claim {
            moved,
            ..self.claim(delivered, number, &self.consumer)
        }
    }
}

fn ticket(text: &str, queue: &QueueName) -> Option<Ticket> {
    let mut parts = text.splitn(5, ' ');
    let place = MessagePlace {
        queue: queue.clone(),
        shard: parts.next()?.parse().ok()?,
        id: (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?),
    };
    Some(Ticket {
        place,
        number: parts.next()?.parse().ok()?,
        consumer: parts.next()?.into(),
    })
}

fn found((place, entry): (MessagePlace, QueueEntry)) -> FoundEntry {
    let (time, message) = place.id;
    FoundEntry {
        ticket: format!("{} {time} {message} 0 -", place.shard),
        queue: place.queue,
        entry,
    }
}

#[async_trait]
impl Queue for QueueClient {
    async fn push(
        &self,
        queue: &QueueName,
        entry: QueueEntry,
    ) -> Result<Option<EntryPlace>, QueueError> {
        let holds_job = self
            .lock()
            .unacked
            .iter()
            .any(|(place, (_, job))| place.queue == *queue && *job == entry.id);
        let place = self
            .call(|server| server.push(queue, entry, holds_job, &self.consumer))
            .await?;
        Ok(Some(EntryPlace {
            stream: format!("{}:s{}", place.queue, place.shard).into(),
            message: format!("{}-{}", place.id.0, place.id.1).into(),
        }))
    }

    async fn wait_for_more_than(
        &self,
        queue: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError> {
        loop {
            let pushed = self.server.pushed(queue);
            let notified = pushed.notified();
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
        let until = Instant::now() + options.timeout;
        loop {
            let pushed = self.server.pushed(queue);
            if let Some(claim) = self.take_now(queue, options).await? {
                return Ok(Some(claim));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            tokio::time::timeout_at(until, pushed.notified()).await.ok();
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, QueueError> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let held: Vec<Option<Ticket>> = claims.iter().map(|claim| self.held(claim)).collect();
        let renewed: Vec<bool> = self
            .call(|server| {
                let renew = |ticket: &Ticket| server.renew(&ticket.place, &ticket.consumer);
                held.iter()
                    .map(|ticket| ticket.as_ref().is_some_and(renew))
                    .collect()
            })
            .await?;
        let mut lost = Vec::new();
        for ((claim, ticket), is_held) in claims.iter().zip(&held).zip(renewed) {
            if !is_held {
                ticket.iter().for_each(|ticket| self.forget(ticket));
                lost.push(claim.clone());
            }
        }
        Ok(lost)
    }

    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError> {
        let Some(ticket) = self.held(claim) else {
            return Ok(false);
        };
        let was_held = self
            .call(|server| server.ack(&ticket.place, &ticket.consumer))
            .await?;
        self.forget(&ticket);
        Ok(was_held)
    }

    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError> {
        let Some(ticket) = self.held(claim) else {
            return Ok(());
        };
        let uncounted = u32::from(ticket.consumer != self.upkeep);
        self.call(|server| server.put_back(&ticket.place, &ticket.consumer, uncounted))
            .await?;
        self.forget(&ticket);
        Ok(())
    }

    async fn put_back_job(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<PutBackResult, QueueError> {
        self.call(|server| server.put_back_job(queue, account, id))
            .await
    }

    async fn remove(
        &self,
        queue: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError> {
        self.call(|server| server.remove(queue, account, id)).await
    }

    async fn overdue(&self, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        let overdue = self.call(|server| server.overdue(limit)).await?;
        Ok(overdue.into_iter().map(found).collect())
    }

    async fn settle(&self, overdue: &FoundEntry) -> Result<(), QueueError> {
        match ticket(&overdue.ticket, &overdue.queue) {
            Some(ticket) => {
                self.call(|server| server.settle(&ticket.place, &overdue.entry))
                    .await
            }
            None => Ok(()),
        }
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(None)
    }

    async fn lost(&self, idle: Duration, limit: usize) -> Result<Vec<Claim>, QueueError> {
        let lost = self
            .call(|server| server.lost(idle, limit, &self.upkeep))
            .await?;
        let claims = lost.into_iter().map(|delivered| {
            self.lock().unacked.remove(&delivered.place);
            self.claim(delivered, 0, &self.upkeep)
        });
        Ok(claims.collect())
    }

    async fn collect(&self) -> Result<usize, QueueError> {
        self.call(QueueServer::collect).await
    }

    async fn old(&self, age: Duration, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        let old = self.call(|server| server.old(age, limit)).await?;
        Ok(old.into_iter().map(found).collect())
    }

    async fn remove_old(&self, old: &[FoundEntry]) -> Result<usize, QueueError> {
        let tickets = old.iter().filter_map(|old| ticket(&old.ticket, &old.queue));
        let places: Vec<MessagePlace> = tickets.map(|ticket| ticket.place).collect();
        self.call(|server| server.remove_all(&places)).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<QueueDepth, QueueError> {
        self.call(|server| server.depth(queue)).await
    }

    async fn statistics(&self) -> Result<QueueStatistics, QueueError> {
        self.call(QueueServer::statistics).await
    }

    async fn queues(&self) -> Result<Vec<QueueName>, QueueError> {
        self.call(QueueServer::queues).await
    }

    async fn bury(&self, claim: &Claim, reason: &str) -> Result<bool, QueueError> {
        let Some(ticket) = self.held(claim) else {
            return Ok(false);
        };
        let was_held = self
            .call(|server| server.bury(&ticket.place, &ticket.consumer, reason))
            .await?;
        self.forget(&ticket);
        Ok(was_held)
    }

    async fn dead_letters(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        self.call(|server| server.dead_letters(after, limit)).await
    }

    async fn replay_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        let letter = self.call(|server| server.drop_dead_letter(id)).await?;
        let Some((queue, entry)) = letter.and_then(|letter| Some((letter.queue, letter.entry?)))
        else {
            return Ok(false);
        };
        self.push(&queue, entry).await?;
        Ok(true)
    }

    async fn drop_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        let dropped = self.call(|server| server.drop_dead_letter(id)).await?;
        Ok(dropped.is_some())
    }

    async fn remove_stale_consumers(&self, _age: Duration) -> Result<usize, QueueError> {
        // Consumers are names in this model.
        Ok(0)
    }

    async fn epoch(&self) -> Result<String, QueueError> {
        self.call(QueueServer::epoch).await
    }

    fn first_epoch(&self) -> &str {
        &self.first_epoch
    }

    fn is_shared(&self) -> bool {
        true
    }
}
