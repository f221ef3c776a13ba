//! The servers of the queue and the claims of this process, which the fetchers and the callers share.

use tidegate_core::queue::{Claim, QueueError, QueueName};

use super::RedisQueueConfig;
use super::backend::Backend;
use super::keys::{self, account_name, account_shards};
use super::message;
use super::reply::Delivered;
use super::scripts::Scripts;
use super::unacked::{ClaimTicket, Unacked};

/// The most dead letters that are kept; the oldest are dropped.
const MAX_DEAD_LETTERS: usize = 100_000;

/// What fetchers and callers share.
pub(super) struct QueueServers {
    pub(super) config: RedisQueueConfig,
    pub(super) backends: Vec<Backend>,
    pub(super) scripts: Scripts,
    pub(super) unacked: Unacked,
}

/// Whether a delivery that is put back counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryCount {
    /// The consumer put the message back: it does not count.
    Restore,
    /// The consumer was lost: it counts.
    Keep,
}

impl QueueServers {
    /// The server of a claim.
    fn backend(&self, ticket: &ClaimTicket) -> Result<&Backend, QueueError> {
        let backend = self.backends.get(ticket.backend);
        backend.ok_or_else(|| QueueError("the claim is of another queue".to_owned()))
    }

    /// The name under which upkeep holds messages. Different from the consumer's: a claim of the same
    /// process that was lost must be invalid.
    pub(super) fn upkeep_consumer(&self) -> String {
        format!("{}:upkeep", self.config.consumer)
    }

    /// The shards of the account of a claim or entry, as the scripts expect them.
    pub(super) fn subset(&self, queue: &QueueName, account: &tidegate_core::Account) -> String {
        let RedisQueueConfig {
            shards,
            account_shards: count,
            ..
        } = self.config;
        let subset = account_shards(queue, account, shards, count);
        let texts: Vec<String> = subset.iter().map(u16::to_string).collect();
        texts.join(",")
    }

    /// The claim of a message that was delivered to this consumer; a message that names no job becomes a
    /// dead letter.
    pub(super) async fn claim(
        &self,
        server: usize,
        queue: &QueueName,
        delivered: Delivered,
    ) -> Result<Option<Claim>, QueueError> {
        let consumer = self.config.consumer.clone();
        let number = self.unacked.next_number();
        let claim = self
            .decode(server, queue, delivered, consumer, number)
            .await?;
        Ok(claim.map(|(ticket, claim)| {
            self.unacked.insert(&ticket, &claim);
            claim
        }))
    }

    /// The claim of a message that upkeep has taken over.
    pub(super) async fn lost_claim(
        &self,
        server: usize,
        queue: &QueueName,
        delivered: Delivered,
    ) -> Result<Option<Claim>, QueueError> {
        let consumer = self.upkeep_consumer();
        let claim = self.decode(server, queue, delivered, consumer, 0).await?;
        Ok(claim.map(|(ticket, claim)| {
            self.unacked.forget(&ticket, queue);
            claim
        }))
    }

    async fn decode(
        &self,
        backend: usize,
        queue: &QueueName,
        delivered: Delivered,
        consumer: String,
        number: u64,
    ) -> Result<Option<(ClaimTicket, Claim)>, QueueError> {
        let Delivered {
            shard,
            message,
            fields,
            deliveries,
        } = delivered;
        let ticket = ClaimTicket {
            backend,
            shard,
            message,
            number,
            consumer,
        };
        let entry = match message::decode(&fields) {
            Ok(entry) => entry,
            Err(error) => {
                tracing::error!(%queue, message = ticket.message, %error, "moved message to the dead letters");
                self.bury(&ticket, queue, &error.to_string()).await?;
                return Ok(None);
            }
        };
        let claim = Claim {
            queue: queue.clone(),
            entry,
            stream: keys::stream(queue, shard),
            moved: true,
            deliveries,
            ticket: ticket.to_string(),
        };
        Ok(Some((ticket, claim)))
    }

    pub(super) async fn ack(&self, claim: &Claim) -> Result<bool, QueueError> {
        let Some(ticket) = self.held_ticket(claim) else {
            return Ok(false);
        };
        let (account, id) = (&claim.entry.account, &claim.entry.id);
        let arguments = [
            ticket.shard.to_string(),
            ticket.message.clone(),
            ticket.consumer.clone(),
            account_name(account).to_owned(),
            id.to_string(),
            self.config.shards.to_string(),
            self.subset(&claim.queue, account),
            u8::from(claim.entry.deadline.is_some()).to_string(),
        ];
        let backend = self.backend(&ticket)?;
        let was_held: i64 = backend
            .on_queue(&self.scripts.ack, &claim.queue, &arguments)
            .await?;
        self.unacked.remove(&ticket, &claim.queue);
        Ok(was_held == 1)
    }

    pub(super) async fn put_back(
        &self,
        claim: &Claim,
        count: DeliveryCount,
    ) -> Result<(), QueueError> {
        let Some(ticket) = self.held_ticket(claim) else {
            return Ok(());
        };
        let change = match count {
            DeliveryCount::Restore => "-1",
            DeliveryCount::Keep => "0",
        };
        let arguments = [
            ticket.shard.to_string(),
            ticket.message.clone(),
            ticket.consumer.clone(),
            account_name(&claim.entry.account).to_owned(),
            claim.entry.id.to_string(),
            change.to_owned(),
        ];
        let backend = self.backend(&ticket)?;
        let _: i64 = backend
            .on_queue(&self.scripts.put_back, &claim.queue, &arguments)
            .await?;
        self.unacked.remove(&ticket, &claim.queue);
        Ok(())
    }

    /// Moves a claimed message to the dead letters; returns whether the claim held it.
    pub(super) async fn bury(
        &self,
        ticket: &ClaimTicket,
        queue: &QueueName,
        reason: &str,
    ) -> Result<bool, QueueError> {
        let arguments = [
            ticket.shard.to_string(),
            ticket.message.clone(),
            ticket.consumer.clone(),
            reason.to_owned(),
            MAX_DEAD_LETTERS.to_string(),
        ];
        let backend = self.backend(ticket)?;
        let was_held: i64 = backend
            .on_queue(&self.scripts.bury, queue, &arguments)
            .await?;
        self.unacked.remove(ticket, queue);
        Ok(was_held == 1)
    }

    /// The ticket of a claim, unless a later claim of this process has its message.
    pub(super) fn held_ticket(&self, claim: &Claim) -> Option<ClaimTicket> {
        let ticket = ClaimTicket::of(claim)?;
        self.unacked
            .may_hold(&ticket, &claim.queue)
            .then_some(ticket)
    }

    /// Lets the messages wait again that were delivered to this consumer and that it does not know.
    pub(super) async fn recover(
        &self,
        server: usize,
        queue: &QueueName,
    ) -> Result<usize, QueueError> {
        let RedisQueueConfig {
            shards,
            consumer,
            max_deliveries,
            ..
        } = &self.config;
        let mut arguments = vec![
            shards.to_string(),
            consumer.clone(),
            max_deliveries.to_string(),
        ];
        arguments.extend(self.unacked.places(server, queue));
        self.backends[server]
            .on_queue(&self.scripts.recover, queue, &arguments)
            .await
    }

    /// Renews the claims of one queue; returns those that are lost.
    pub(super) async fn renew(&self, claims: &[&Claim]) -> Result<Vec<Claim>, QueueError> {
        let mut lost: Vec<Claim> = Vec::new();
        let mut held: Vec<(ClaimTicket, &Claim)> = Vec::new();
        for claim in claims {
            match self.held_ticket(claim) {
                Some(ticket) => held.push((ticket, *claim)),
                None => lost.push((*claim).clone()),
            }
        }
        let same = |a: &(ClaimTicket, &Claim), b: &(ClaimTicket, &Claim)| {
            a.0.backend == b.0.backend && a.0.consumer == b.0.consumer && a.1.queue == b.1.queue
        };
        held.sort_by(|(a, first), (b, second)| {
            let first = (a.backend, &a.consumer, &first.queue);
            first.cmp(&(b.backend, &b.consumer, &second.queue))
        });
        for group in held.chunk_by(same) {
            let (first, claim) = &group[0];
            let mut arguments = vec![first.consumer.clone()];
            for (ticket, _) in group {
                arguments.extend([ticket.shard.to_string(), ticket.message.clone()]);
            }
            let renewed: Vec<i64> = self
                .backend(first)?
                .on_queue(&self.scripts.renew, &claim.queue, &arguments)
                .await?;
            for ((ticket, claim), is_held) in group.iter().zip(renewed) {
                if is_held == 0 {
                    self.unacked.remove(ticket, &claim.queue);
                    lost.push((*claim).clone());
                }
            }
        }
        Ok(lost)
    }
}
