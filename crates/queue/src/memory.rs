//! [`MemoryQueue`]: the queues of one process, in its memory. Nothing is stored: each entry follows from
//! the record of a job in the store and is created again from there. This process is the only consumer.

mod dead_letters;
mod model_queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dead_letters::DeadLetters;
use jiff::Timestamp;
use model_queue::{ModelQueue, RemovedEntry, TakenEntry};
use tidegate_core::queue::{
    Claim, DeadLetter, EntryPlace, FoundEntry, Queue, QueueDepth, QueueEntry, QueueError,
    QueueName, QueueStatistics, QueueUsage, TakeOptions,
};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Queues in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryQueue {
    queues: Arc<Mutex<QueueSet>>,
}

#[derive(Default)]
struct QueueSet {
    queues: HashMap<QueueName, ModelQueue>,
    /// Entries by deadline, on the monotonic clock; entries with the same deadline by their number.
    deadlines: BTreeMap<(Instant, u64), QueueName>,
    /// The last number that was given to an entry or to a lease.
    last_number: u64,
    dead_letters: DeadLetters,
}

impl QueueSet {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn queue(&mut self, name: &QueueName) -> &mut ModelQueue {
        self.queues.entry(name.clone()).or_default()
    }

    fn push(&mut self, name: &QueueName, entry: QueueEntry) {
        let number = self.next_number();
        let due = entry.deadline.map(to_monotonic);
        let deadline = due.map(|due| ((due, number), name.clone()));
        if self.queue(name).push(number, entry, due) {
            self.deadlines.extend(deadline);
        }
    }

    fn after_removal(&mut self, name: &QueueName, removed: RemovedEntry) {
        let RemovedEntry {
            number,
            due,
            pushed_again,
        } = removed;
        due.map(|due| self.deadlines.remove(&(due, number)));
        if let Some(entry) = pushed_again {
            self.push(name, entry);
        }
    }
}

impl MemoryQueue {
    fn with<R>(&self, f: impl FnOnce(&mut QueueSet) -> R) -> R {
        f(&mut self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pushed(&self, name: &QueueName) -> Arc<Notify> {
        self.with(|queues| Arc::clone(&queues.queue(name).pushed))
    }

    fn try_take(&self, name: &QueueName) -> Option<Claim> {
        self.with(|queues| {
            let lease = queues.next_number();
            let taken = queues.queue(name).take(lease)?;
            Some(claim(name, taken, lease))
        })
    }
}

fn claim(name: &QueueName, taken: TakenEntry, lease: u64) -> Claim {
    Claim {
        queue: name.clone(),
        entry: taken.entry,
        stream: name.to_shared(),
        moved: false,
        deliveries: taken.deliveries,
        ticket: lease.to_string(),
    }
}

/// The instant on the monotonic clock, which no clock adjustment moves.
fn to_monotonic(at: Timestamp) -> Instant {
    let (now, from_now) = (Instant::now(), at.duration_since(Timestamp::now()));
    let then = if from_now.is_negative() {
        now.checked_sub(from_now.unsigned_abs())
    } else {
        now.checked_add(from_now.unsigned_abs())
    };
    then.unwrap_or(now)
}

/// The inverse of [`to_monotonic`].
fn to_wall_clock(due: Instant) -> Option<Timestamp> {
    Timestamp::now()
        .checked_add(due.saturating_duration_since(Instant::now()))
        .ok()
}

/// The lease number in the claim's ticket. A ticket of another queue gives zero, which is no lease.
fn lease(claim: &Claim) -> u64 {
    claim.ticket.parse().unwrap_or_default()
}

fn found(name: &QueueName, number: u64, entry: QueueEntry) -> FoundEntry {
    FoundEntry {
        queue: name.clone(),
        entry,
        ticket: number.to_string(),
    }
}

/// The number in the ticket of an entry; zero is the number of none.
fn number(found: &FoundEntry) -> u64 {
    found.ticket.parse().unwrap_or_default()
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn push(
        &self,
        name: &QueueName,
        entry: QueueEntry,
    ) -> Result<Option<EntryPlace>, QueueError> {
        self.with(|queues| queues.push(name, entry));
        Ok(None)
    }

    async fn wait_for_more_than(
        &self,
        name: &QueueName,
        more_than: usize,
    ) -> Result<usize, QueueError> {
        let pushed = self.pushed(name);
        loop {
            let notified = pushed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let waiting = self.with(|queues| queues.queue(name).depth().waiting);
            if waiting > more_than {
                return Ok(waiting);
            }
            notified.await;
        }
    }

    async fn take(
        &self,
        name: &QueueName,
        TakeOptions { timeout, .. }: TakeOptions,
    ) -> Result<Option<Claim>, QueueError> {
        if let Some(claim) = self.try_take(name) {
            return Ok(Some(claim));
        }
        let until = Instant::now() + timeout;
        while tokio::time::timeout_at(until, self.wait_for_more_than(name, 0))
            .await
            .is_ok()
        {
            if let Some(claim) = self.try_take(name) {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, QueueError> {
        Ok(self.with(|queues| {
            let is_lost = |claim: &&Claim| !queues.queue(&claim.queue).renew(lease(claim));
            claims.iter().filter(is_lost).cloned().collect()
        }))
    }

    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError> {
        Ok(self.with(
            |queues| match queues.queue(&claim.queue).ack(lease(claim)) {
                Some(removed) => {
                    queues.after_removal(&claim.queue, removed);
                    true
                }
                None => false,
            },
        ))
    }

    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError> {
        self.with(|queues| queues.queue(&claim.queue).put_back(lease(claim)));
        Ok(())
    }

    async fn remove(
        &self,
        name: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError> {
        self.with(|queues| {
            if let Some(removed) = queues.queue(name).remove(account, id) {
                queues.after_removal(name, removed);
            }
        });
        Ok(())
    }

    async fn overdue(&self, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        Ok(self.with(|queues| {
            let QueueSet {
                queues, deadlines, ..
            } = queues;
            let entry = |((_, number), name): (&(Instant, u64), &QueueName)| {
                let entry = queues.get(name)?.entry(*number)?;
                Some(found(name, *number, entry))
            };
            let passed = deadlines.range(..=(Instant::now(), u64::MAX));
            passed.filter_map(entry).take(limit).collect()
        }))
    }

    async fn settle(&self, overdue: &FoundEntry) -> Result<(), QueueError> {
        self.with(|queues| {
            let queue = queues.queue(&overdue.queue);
            let Some(due) = queue.due(number(overdue)) else {
                return;
            };
            queue.remove(&overdue.entry.account, &overdue.entry.id);
            queues.deadlines.remove(&(due, number(overdue)));
        });
        Ok(())
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(self.with(|queues| {
            queues
                .deadlines
                .keys()
                .next()
                .and_then(|(due, _)| to_wall_clock(*due))
        }))
    }

    async fn lost(&self, idle: Duration, limit: usize) -> Result<Vec<Claim>, QueueError> {
        Ok(self.with(|queues| {
            let names: Vec<QueueName> = queues.queues.keys().cloned().collect();
            let mut claims = Vec::new();
            for name in names {
                for expired in queues
                    .queue(&name)
                    .expired_leases(idle, limit - claims.len())
                {
                    let lease = queues.next_number();
                    if let Some(taken) = queues.queue(&name).transfer(expired, lease) {
                        claims.push(claim(&name, taken, lease));
                    }
                }
            }
            claims
        }))
    }

    async fn collect(&self) -> Result<usize, QueueError> {
        Ok(self.with(|queues| {
            let count = queues.queues.values_mut().map(ModelQueue::collect).sum();
            queues.queues.retain(|_, queue| !queue.is_unused());
            count
        }))
    }

    async fn old(&self, age: Duration, limit: usize) -> Result<Vec<FoundEntry>, QueueError> {
        let Ok(before) = Timestamp::now().checked_sub(age) else {
            return Ok(Vec::new());
        };
        Ok(self.with(|queues| {
            let mut old: Vec<(u64, &QueueName, &ModelQueue)> = Vec::new();
            for (name, queue) in &queues.queues {
                old.extend(queue.older_than(before).map(|number| (number, name, queue)));
            }
            old.sort_unstable_by_key(|(number, ..)| *number);
            old.into_iter()
                .take(limit)
                .filter_map(|(number, name, queue)| Some(found(name, number, queue.entry(number)?)))
                .collect()
        }))
    }

    async fn remove_old(&self, old: &[FoundEntry]) -> Result<usize, QueueError> {
        Ok(self.with(|queues| {
            let removed = old.iter().filter_map(|found| {
                let removed = queues.queue(&found.queue).discard(number(found))?;
                queues.after_removal(&found.queue, removed);
                Some(())
            });
            removed.count()
        }))
    }

    async fn depth(&self, name: &QueueName) -> Result<QueueDepth, QueueError> {
        Ok(self.with(|queues| queues.queue(name).depth()))
    }

    async fn statistics(&self) -> Result<QueueStatistics, QueueError> {
        let now = Timestamp::now();
        Ok(self.with(|queues| {
            let usage = |(name, queue): (&QueueName, &ModelQueue)| QueueUsage {
                name: name.clone(),
                depth: queue.depth(),
                oldest_wait: queue.oldest_wait(now),
            };
            QueueStatistics {
                queues: queues.queues.iter().map(usage).collect(),
                dead_letters: queues.dead_letters.len(),
            }
        }))
    }

    async fn queues(&self) -> Result<Vec<QueueName>, QueueError> {
        Ok(self.with(|queues| queues.queues.keys().cloned().collect()))
    }

    async fn bury(&self, claim: &Claim, reason: &str) -> Result<bool, QueueError> {
        let was_held = self.ack(claim).await?;
        if was_held {
            self.with(|queues| queues.dead_letters.add(claim, reason));
        }
        Ok(was_held)
    }

    async fn dead_letters(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        Ok(self.with(|queues| queues.dead_letters.list(after, limit)))
    }

    async fn replay_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        Ok(self.with(|queues| {
            let Some(letter) = queues.dead_letters.remove(id) else {
                return false;
            };
            if let Some(entry) = letter.entry {
                queues.push(&letter.queue, entry);
            }
            true
        }))
    }

    async fn drop_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        Ok(self.with(|queues| queues.dead_letters.remove(id).is_some()))
    }

    async fn remove_stale_consumers(&self, _age: Duration) -> Result<usize, QueueError> {
        Ok(0)
    }

    async fn epoch(&self) -> Result<String, QueueError> {
        Ok(String::new())
    }

    fn first_epoch(&self) -> &str {
        ""
    }

    fn is_shared(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
