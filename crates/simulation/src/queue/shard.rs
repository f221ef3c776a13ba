//! One shard of a queue: a stream of messages, and those that were delivered and not acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::queue::QueueEntry;

/// When a message was pushed, in milliseconds, and its number.
pub(super) type MessageId = (i64, u64);

/// Holds the messages that were put back: they wait, although they were delivered.
pub(super) const RETURNED: &str = "returned";

/// A stream with one group of consumers.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) messages: BTreeMap<MessageId, QueueEntry>,
    pub(super) pending: BTreeMap<MessageId, Delivery>,
    /// Later messages were never delivered.
    last_delivered: MessageId,
}

/// A message that was delivered and not acknowledged.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) consumer: Arc<str>,
    pub(super) deliveries: u32,
    /// When it was delivered or renewed, in microseconds.
    pub(super) at: i64,
}

impl Shard {
    /// Delivers the next message to a consumer.
    pub(super) fn read(
        &mut self,
        consumer: &Arc<str>,
        now: i64,
    ) -> Option<(MessageId, QueueEntry)> {
        let from = (self.last_delivered.0, self.last_delivered.1 + 1);
        let (id, entry) = self.messages.range(from..).next()?;
        let (id, entry) = (*id, entry.clone());
        self.last_delivered = id;
        let delivery = Delivery {
            consumer: Arc::clone(consumer),
            deliveries: 1,
            at: now,
        };
        self.pending.insert(id, delivery);
        Some((id, entry))
    }

    /// The consumer of a message, unless it waits.
    pub(super) fn owner(&self, id: &MessageId) -> Option<&Delivery> {
        self.pending
            .get(id)
            .filter(|delivery| &*delivery.consumer != RETURNED)
    }

    /// Whether a consumer has a message.
    pub(super) fn is_held(&self, id: &MessageId, consumer: &str) -> bool {
        self.pending
            .get(id)
            .is_some_and(|delivery| &*delivery.consumer == consumer)
    }

    pub(super) fn delete(&mut self, id: &MessageId) -> Option<QueueEntry> {
        self.pending.remove(id);
        self.messages.remove(id)
    }
}
