//! What the upkeep loops ask of the server: deadlines, lost messages, old messages, dead letters.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::{
    DeadLetter, QueueDepth, QueueEntry, QueueName, QueueStatistics, QueueUsage,
};

use super::server::{DeliveredEntry, MessagePlace, QueueServer};
use super::shard::RETURNED;
use crate::planted_bug::PlantedBug;

impl QueueServer {
    /// Messages whose deadline has passed.
    pub(super) fn overdue(&self, limit: usize) -> Vec<(MessagePlace, QueueEntry)> {
        if self.has(PlantedBug::IgnoredDeadline) {
            return Vec::new();
        }
        let now = self.clock.micros();
        let state = self.lock();
        let due = state.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.filter_map(|(_, place)| Some((place.clone(), state.entry(place)?.clone())))
            .take(limit)
            .collect()
    }

    /// Forgets the deadline of a message; removes it unless it is claimed.
    pub(super) fn settle(&self, place: &MessagePlace, entry: &QueueEntry) {
        let mut state = self.lock();
        if let Some(deadline) = entry.deadline {
            state
                .deadlines
                .remove(&(deadline.as_microsecond(), place.clone()));
        }
        let is_claimed = state
            .shard(place)
            .is_some_and(|shard| shard.owner(&place.id).is_some());
        if !is_claimed && state.entry(place).is_some() {
            state.garbage.insert(place.clone());
        }
    }

    pub(super) fn collect(&self) -> usize {
        let mut state = self.lock();
        let garbage = std::mem::take(&mut state.garbage);
        let mut count = 0;
        for place in garbage {
            let is_claimed = state
                .shard(&place)
                .is_some_and(|shard| shard.owner(&place.id).is_some());
            if !is_claimed && state.delete(&place).is_some() {
                count += 1;
            }
        }
        count
    }

    /// Transfers messages whose consumer did not renew them to the upkeep.
    pub(super) fn lost(
        &self,
        idle: Duration,
        limit: usize,
        upkeep: &Arc<str>,
    ) -> Vec<DeliveredEntry> {
        let now = self.clock.micros();
        let before = now - i64::try_from(idle.as_micros()).unwrap_or(0);
        let mut state = self.lock();
        let mut lost = Vec::new();
        for (name, queue) in &mut state.queues {
            for (number, shard) in queue.shards.iter_mut().enumerate() {
                for (id, delivery) in &mut shard.pending {
                    let is_idle = &*delivery.consumer != RETURNED && delivery.at <= before;
                    let Some(entry) = shard.messages.get(id).filter(|_| is_idle) else {
                        continue;
                    };
                    if lost.len() == limit {
                        return lost;
                    }
                    delivery.consumer = Arc::clone(upkeep);
                    delivery.at = now;
                    lost.push(DeliveredEntry {
                        place: MessagePlace {
                            queue: name.clone(),
                            shard: number,
                            id: *id,
                        },
                        entry: entry.clone(),
                        deliveries: delivery.deliveries,
                    });
                }
            }
        }
        lost
    }

    /// Messages that were pushed this long ago, oldest first.
    pub(super) fn old(&self, age: Duration, limit: usize) -> Vec<(MessagePlace, QueueEntry)> {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX / 4);
        let before = self.clock.micros() / 1000 - age;
        let state = self.lock();
        let mut old = Vec::new();
        for (name, queue) in &state.queues {
            for (shard, stream) in queue.shards.iter().enumerate() {
                for (id, entry) in stream.messages.range(..=(before, u64::MAX)).take(limit) {
                    let place = MessagePlace {
                        queue: name.clone(),
                        shard,
                        id: *id,
                    };
                    old.push((place, entry.clone()));
                }
            }
        }
        old.sort_by_key(|(place, _)| place.id);
        old.truncate(limit);
        old
    }

    pub(super) fn remove_all(&self, places: &[MessagePlace]) -> usize {
        let mut state = self.lock();
        let removed = places.iter().filter(|place| state.delete(place).is_some());
        removed.count()
    }

    pub(super) fn depth(&self, queue: &QueueName) -> QueueDepth {
        let mut state = self.lock();
        let shared = state.queue(queue);
        let mut depth = QueueDepth::default();
        for shard in &shared.shards {
            let claimed = shard
                .pending
                .values()
                .filter(|delivery| &*delivery.consumer != RETURNED)
                .count();
            depth.claimed += claimed;
            depth.waiting += shard.messages.len().saturating_sub(claimed);
        }
        depth
    }

    pub(super) fn statistics(&self) -> QueueStatistics {
        let now = self.clock.micros() / 1000;
        let queues = self.queues().into_iter().map(|name| QueueUsage {
            depth: self.depth(&name),
            oldest_wait: self.oldest_waiting(&name).map(|pushed_at| {
                Duration::from_millis(u64::try_from(now - pushed_at).unwrap_or_default())
            }),
            name,
        });
        QueueStatistics {
            queues: queues.collect(),
            dead_letters: self.lock().dead.len(),
        }
    }

    /// When the oldest entry was pushed that no consumer has, in milliseconds.
    fn oldest_waiting(&self, queue: &QueueName) -> Option<i64> {
        let mut state = self.lock();
        let shards = state.queue(queue).shards.iter();
        let oldest = shards.filter_map(|shard| {
            let mut waiting = shard.messages.keys();
            waiting.find(|id| shard.owner(id).is_none()).map(|id| id.0)
        });
        oldest.min()
    }

    pub(super) fn queues(&self) -> Vec<QueueName> {
        self.lock().queues.keys().cloned().collect()
    }

    /// Moves a claimed message to the dead letters.
    pub(super) fn bury(&self, place: &MessagePlace, consumer: &str, reason: &str) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let is_held = state
            .shard(place)
            .is_some_and(|shard| shard.is_held(&place.id, consumer));
        if !is_held {
            return false;
        }
        let entry = state.delete(place);
        state.last_number += 1;
        let number = state.last_number;
        let letter = DeadLetter {
            id: number.to_string(),
            queue: place.queue.clone(),
            data: entry
                .as_ref()
                .map(|entry| entry.id.to_string())
                .unwrap_or_default(),
            entry,
            reason: reason.to_owned(),
            size: 0,
            at: self.clock.now(),
        };
        state.dead.insert(number, letter);
        true
    }

    pub(super) fn dead_letters(&self, after: Option<&str>, limit: usize) -> Vec<DeadLetter> {
        let after = after.and_then(|after| after.parse().ok()).unwrap_or(0u64);
        let state = self.lock();
        let later = state.dead.range(after + 1..);
        later
            .take(limit)
            .map(|(_, letter)| letter.clone())
            .collect()
    }

    pub(super) fn drop_dead_letter(&self, id: &str) -> Option<DeadLetter> {
        let number: u64 = id.parse().ok()?;
        self.lock().dead.remove(&number)
    }
}
