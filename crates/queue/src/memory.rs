//! The queue of one process, in its memory. Nothing of it is written down: each entry follows from the record of a
//! job in the store, and is made again from there. It does not matter who holds an entry: it is this process.

mod line;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use line::{Gone, Line};
use tidegate_core::queue::{Claim, Consumer, Queue, QueueDepth, QueueEntry, QueueError, QueueName};
use tidegate_core::{Account, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Lines in memory. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub struct MemoryQueue {
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    lines: HashMap<QueueName, Line>,
    /// Entries by their deadlines, by the clock that nobody sets; those of one moment by their numbers.
    deadlines: BTreeMap<(Instant, u64), (QueueName, QueueEntry)>,
    /// The number of the entry that came last, or of the taking.
    last: u64,
}

impl Lines {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn line(&mut self, name: &QueueName) -> &mut Line {
        self.lines.entry(name.clone()).or_default()
    }

    fn push(&mut self, name: &QueueName, entry: QueueEntry) {
        let number = self.number();
        let due = entry.deadline.map(steady);
        let deadline = due.map(|due| ((due, number), (name.clone(), entry.clone())));
        if self.line(name).push(number, entry, due) {
            self.deadlines.extend(deadline);
        }
    }

    fn forget(&mut self, name: &QueueName, Gone { number, due, again }: Gone) {
        due.map(|due| self.deadlines.remove(&(due, number)));
        if let Some(entry) = again {
            self.push(name, entry);
        }
    }
}

impl MemoryQueue {
    fn with<R>(&self, f: impl FnOnce(&mut Lines) -> R) -> R {
        f(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn came(&self, line: &QueueName) -> Arc<Notify> {
        self.with(|lines| Arc::clone(&lines.line(line).came))
    }

    fn take_now(&self, name: &QueueName) -> Option<Claim> {
        self.with(|lines| {
            let lease = lines.number();
            let entry = lines.line(name).take(lease)?;
            Some(Claim {
                line: name.clone(),
                entry,
                ticket: lease.to_string(),
            })
        })
    }
}

/// A moment by the clock that nobody sets.
fn steady(at: Timestamp) -> Instant {
    let (now, from_now) = (Instant::now(), at.duration_since(Timestamp::now()));
    let then = if from_now.is_negative() {
        now.checked_sub(from_now.unsigned_abs())
    } else {
        now.checked_add(from_now.unsigned_abs())
    };
    then.unwrap_or(now)
}

/// The other way round.
fn wall(due: Instant) -> Option<Timestamp> {
    Timestamp::now()
        .checked_add(due.saturating_duration_since(Instant::now()))
        .ok()
}

/// The number on a ticket of ours; one of somebody else is no lease of anybody.
fn lease(claim: &Claim) -> u64 {
    claim.ticket.parse().unwrap_or_default()
}

#[async_trait]
impl Queue for MemoryQueue {
    async fn push(&self, name: &QueueName, entry: QueueEntry) -> Result<(), QueueError> {
        self.with(|lines| lines.push(name, entry));
        Ok(())
    }

    async fn waits(&self, name: &QueueName, more_than: usize) -> Result<usize, QueueError> {
        let came = self.came(name);
        loop {
            let notified = came.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let waiting = self.with(|lines| lines.line(name).depth().waiting);
            if waiting > more_than {
                return Ok(waiting);
            }
            notified.await;
        }
    }

    async fn take(
        &self,
        name: &QueueName,
        _holder: &Consumer,
        patience: Duration,
    ) -> Result<Option<Claim>, QueueError> {
        if let Some(claim) = self.take_now(name) {
            return Ok(Some(claim));
        }
        let until = Instant::now() + patience;
        while tokio::time::timeout_at(until, self.waits(name, 0))
            .await
            .is_ok()
        {
            if let Some(claim) = self.take_now(name) {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<(), QueueError> {
        self.with(|lines| {
            claims
                .iter()
                .for_each(|claim| lines.line(&claim.line).renew(lease(claim)))
        });
        Ok(())
    }

    async fn ack(&self, claim: &Claim) -> Result<bool, QueueError> {
        Ok(
            self.with(|lines| match lines.line(&claim.line).ack(lease(claim)) {
                Some(gone) => {
                    lines.forget(&claim.line, gone);
                    true
                }
                None => false,
            }),
        )
    }

    async fn put_back(&self, claim: &Claim) -> Result<(), QueueError> {
        self.with(|lines| lines.line(&claim.line).put_back(lease(claim)));
        Ok(())
    }

    async fn remove(
        &self,
        name: &QueueName,
        account: &Account,
        id: &JobId,
    ) -> Result<(), QueueError> {
        self.with(|lines| {
            if let Some(gone) = lines.line(name).remove(account, id) {
                lines.forget(name, gone);
            }
        });
        Ok(())
    }

    async fn overdue(&self, now: Timestamp) -> Result<Vec<(QueueName, QueueEntry)>, QueueError> {
        Ok(self.with(|lines| {
            let later = lines.deadlines.split_off(&(steady(now), u64::MAX));
            let overdue: Vec<_> = std::mem::replace(&mut lines.deadlines, later)
                .into_values()
                .collect();
            for (name, entry) in &overdue {
                lines.line(name).remove(&entry.account, &entry.id);
            }
            overdue
        }))
    }

    async fn next_deadline(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(self.with(|lines| {
            lines
                .deadlines
                .keys()
                .next()
                .and_then(|(due, _)| wall(*due))
        }))
    }

    async fn lost(
        &self,
        _holder: &Consumer,
        idle: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        Ok(self.with(|lines| {
            let names: Vec<QueueName> = lines.lines.keys().cloned().collect();
            let mut claims = Vec::new();
            for name in names {
                for old in lines.line(&name).idle(idle, limit - claims.len()) {
                    let lease = lines.number();
                    if let Some(entry) = lines.line(&name).pass_on(old, lease) {
                        claims.push(Claim {
                            line: name.clone(),
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
        Ok(self.with(|lines| {
            let count = lines.lines.values_mut().map(Line::collect).sum();
            lines.lines.retain(|_, line| !line.is_deserted());
            count
        }))
    }

    async fn old(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(QueueName, QueueEntry)>, QueueError> {
        Ok(self.with(|lines| {
            let mut old: Vec<_> = Vec::new();
            for (name, line) in &lines.lines {
                old.extend(
                    line.since_before(before)
                        .map(|(number, entry)| (number, name.clone(), entry.clone())),
                );
            }
            old.sort_by_key(|(number, ..)| *number);
            old.into_iter()
                .take(limit)
                .map(|(_, name, entry)| (name, entry))
                .collect()
        }))
    }

    async fn depth(&self, name: &QueueName) -> Result<QueueDepth, QueueError> {
        Ok(self.with(|lines| lines.line(name).depth()))
    }
}

#[cfg(test)]
mod tests;
