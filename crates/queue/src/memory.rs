//! [`MemoryQueue`]: the queues of one process, in its memory. Nothing is stored: each entry follows from
//! the record of a job in the store and is created again from there. The consumer of a claim does not
//! matter: it is always this process.

mod model_queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use model_queue::{ModelQueue, RemovedEntry};
use tidegate_core::queue::{Claim, Consumer, Queue, QueueDepth, QueueEntry, QueueError, QueueName};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// QueueSet in memory. Clones share them.
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
            let entry = queues.queue(name).take(lease)?;
            Some(Claim {
                queue: name.clone(),
                entry,
                ticket: lease.to_string(),
            })
        })
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

#[async_trait]
impl Queue for MemoryQueue {
    async fn push(&self, name: &QueueName, entry: QueueEntry) -> Result<(), QueueError> {
        self.with(|queues| queues.push(name, entry));
        Ok(())
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
        _consumer: &Consumer,
        timeout: Duration,
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

    async fn renew(&self, claims: &[Claim]) -> Result<(), QueueError> {
        self.with(|queues| {
            claims
                .iter()
                .for_each(|claim| queues.queue(&claim.queue).renew(lease(claim)))
        });
        Ok(())
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

    async fn overdue(&self, now: Timestamp) -> Result<Vec<(QueueName, QueueEntry)>, QueueError> {
        Ok(self.with(|queues| {
            let later = queues.deadlines.split_off(&(to_monotonic(now), u64::MAX));
            let passed = std::mem::replace(&mut queues.deadlines, later);
            let mut overdue = Vec::with_capacity(passed.len());
            for ((_, number), name) in passed {
                let queue = queues.queue(&name);
                if let Some(entry) = queue.entry(number) {
                    queue.remove(&entry.account, &entry.id);
                    overdue.push((name, entry));
                }
            }
            overdue
        }))
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

    async fn lost(
        &self,
        _consumer: &Consumer,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        Ok(self.with(|queues| {
            let names: Vec<QueueName> = queues.queues.keys().cloned().collect();
            let mut claims = Vec::new();
            for name in names {
                for expired in queues
                    .queue(&name)
                    .expired_leases(idle, limit - claims.len())
                {
                    let lease = queues.next_number();
                    if let Some(entry) = queues.queue(&name).transfer(expired, lease) {
                        claims.push(Claim {
                            queue: name.clone(),
                            entry,
                            ticket: lease.to_string(),
                        });
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

    async fn old(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueName, QueueEntry)>, QueueError> {
        Ok(self.with(|queues| {
            let mut old: Vec<(u64, &QueueName, &ModelQueue)> = Vec::new();
            for (name, queue) in &queues.queues {
                old.extend(queue.older_than(before).map(|number| (number, name, queue)));
            }
            old.sort_unstable_by_key(|(number, ..)| *number);
            old.into_iter()
                .take(limit)
                .filter_map(|(number, name, queue)| Some((name.clone(), queue.entry(number)?)))
                .collect()
        }))
    }

    async fn depth(&self, name: &QueueName) -> Result<QueueDepth, QueueError> {
        Ok(self.with(|queues| queues.queue(name).depth()))
    }
}

#[cfg(test)]
mod tests;
