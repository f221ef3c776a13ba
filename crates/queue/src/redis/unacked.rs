//! The messages that this process has taken and not acknowledged.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_core::queue::{Claim, QueueName};
use tidegate_core::{Account, JobId};

/// The messages, by server, stream and id: two streams may have messages with the same id.
#[derive(Default)]
pub(super) struct Unacked {
    messages: Mutex<HashMap<MessageKey, UnackedMessage>>,
    last_number: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MessageKey {
    backend: usize,
    queue: QueueName,
    shard: u16,
    message: String,
}

struct UnackedMessage {
    number: u64,
    account: Account,
    id: JobId,
}

/// The ticket of a claim: where the message is and which claim of it this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimTicket {
    pub(super) backend: usize,
    pub(super) shard: u16,
    pub(super) message: String,
    /// Different for each claim of this process; 0 for claims of upkeep.
    pub(super) number: u64,
    pub(super) consumer: String,
}

impl fmt::Display for ClaimTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            backend,
            shard,
            message,
            number,
            consumer,
        } = self;
        write!(f, "{backend} {shard} {message} {number} {consumer}")
    }
}

impl ClaimTicket {
    /// The ticket of a claim; `None` for a claim of another queue.
    pub(super) fn of(claim: &Claim) -> Option<Self> {
        let mut parts = claim.ticket.splitn(5, ' ');
        Some(Self {
            backend: parts.next()?.parse().ok()?,
            shard: parts.next()?.parse().ok()?,
            message: parts.next()?.to_owned(),
            number: parts.next()?.parse().ok()?,
            consumer: parts.next()?.to_owned(),
        })
    }

    fn key(&self, queue: &QueueName) -> MessageKey {
        MessageKey {
            backend: self.backend,
            queue: queue.clone(),
            shard: self.shard,
            message: self.message.clone(),
        }
    }
}

impl Unacked {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<MessageKey, UnackedMessage>) -> R) -> R {
        f(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of the next claim.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a claim.
    pub(super) fn insert(&self, ticket: &ClaimTicket, claim: &Claim) {
        let message = UnackedMessage {
            number: ticket.number,
            account: claim.entry.account.clone(),
            id: claim.entry.id.clone(),
        };
        self.with(|messages| messages.insert(ticket.key(&claim.queue), message));
    }

    /// Whether a claim may still hold its message: no later claim of this process has it.
    pub(super) fn may_hold(&self, ticket: &ClaimTicket, queue: &QueueName) -> bool {
        if ticket.number == 0 {
            return true;
        }
        self.with(|messages| {
            let known = messages.get(&ticket.key(queue));
            known.is_none_or(|known| known.number == ticket.number)
        })
    }

    /// Removes a claim.
    pub(super) fn remove(&self, ticket: &ClaimTicket, queue: &QueueName) {
        self.with(|messages| {
            let key = ticket.key(queue);
            if messages
                .get(&key)
                .is_some_and(|known| known.number == ticket.number)
            {
                messages.remove(&key);
            }
        });
    }

    /// Forgets the claim of a message that upkeep has taken over.
    pub(super) fn forget(&self, ticket: &ClaimTicket, queue: &QueueName) {
        self.with(|messages| messages.remove(&ticket.key(queue)));
    }

    /// Whether a message of this job is held.
    pub(super) fn has_job(&self, queue: &QueueName, account: &Account, id: &JobId) -> bool {
        self.with(|messages| {
            messages.iter().any(|(key, message)| {
                key.queue == *queue && message.account == *account && message.id == *id
            })
        })
    }

    /// The messages of one queue on one server that are held, as `shard|message`.
    pub(super) fn places(&self, backend: usize, queue: &QueueName) -> Vec<String> {
        self.with(|messages| {
            let here = messages
                .keys()
                .filter(|key| key.backend == backend && key.queue == *queue);
            here.map(|key| format!("{}|{}", key.shard, key.message))
                .collect()
        })
    }
}
