//! OutboxTable messages: taken by receiver, one at a time for each job.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::leases::JobRef;
use tidegate_core::outbox::{
    MessageFilter, MessageState, MessageSummary, OutboxMessage, SendOutcome, TakeRequest,
    TakenMessages,
};

/// The messages that are not settled.
#[derive(Default)]
pub(super) struct OutboxTable {
    last_number: u64,
    messages: BTreeMap<u64, MessageRow>,
    by_id: HashMap<String, u64>,
    by_job: HashMap<JobRef, Vec<u64>>,
    /// When the messages to each receiver are due.
    due: BTreeMap<String, BTreeSet<(i64, u64)>>,
}

struct MessageRow {
    message: OutboxMessage,
    is_interim: bool,
    holder: Option<String>,
    /// When it is due, or when its claim ends.
    next_at: i64,
}

impl MessageRow {
    fn job(&self) -> JobRef {
        JobRef {
            account: self.message.account.clone(),
            id: self.message.job.clone(),
        }
    }

    fn summary(&self) -> MessageSummary {
        let OutboxMessage {
            id,
            account,
            job,
            model,
            hook,
            created_at,
            attempts,
            ..
        } = &self.message;
        let next_at = Timestamp::from_microsecond(self.next_at).unwrap_or(Timestamp::MAX);
        MessageSummary {
            id: id.clone(),
            account: account.clone(),
            job: job.clone(),
            model: model.clone(),
            url: hook.url.clone(),
            created_at: *created_at,
            attempts: *attempts,
            state: match self.holder {
                Some(_) => MessageState::Claimed,
                None => MessageState::Waiting(next_at),
            },
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

impl OutboxTable {
    /// Stores a message, with its claim if it has one.
    pub(super) fn insert(&mut self, mut message: OutboxMessage, is_interim: bool, now: i64) {
        self.last_number += 1;
        let number = self.last_number;
        let claim = message.claim.take();
        let next_at = now + claim.as_ref().map_or(0, |claim| micros(claim.lasts));
        let job = JobRef {
            account: message.account.clone(),
            id: message.job.clone(),
        };
        self.by_id.insert(message.id.clone(), number);
        self.by_job.entry(job).or_default().push(number);
        self.due
            .entry(message.receiver.clone())
            .or_default()
            .insert((next_at, number));
        let row = MessageRow {
            message,
            is_interim,
            holder: claim.map(|claim| claim.holder),
            next_at,
        };
        self.messages.insert(number, row);
    }

    /// Removes the interim messages of a job that no process sends now.
    pub(super) fn remove_unsent(&mut self, job: &JobRef, now: i64) {
        let numbers = self.by_job.get(job).cloned().unwrap_or_default();
        for number in numbers {
            let is_unsent = self
                .messages
                .get(&number)
                .is_some_and(|row| row.is_interim && (row.holder.is_none() || row.next_at <= now));
            if is_unsent {
                self.remove(number);
            }
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(row) = self.messages.remove(&number) else {
            return;
        };
        self.by_id.remove(&row.message.id);
        if let Some(due) = self.due.get_mut(&row.message.receiver) {
            due.remove(&(row.next_at, number));
            if due.is_empty() {
                self.due.remove(&row.message.receiver);
            }
        }
        let job = row.job();
        if let Some(numbers) = self.by_job.get_mut(&job) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_job.remove(&job);
            }
        }
    }

    /// Claims messages that are due.
    pub(super) fn take(&mut self, request: &TakeRequest, now: i64) -> TakenMessages {
        let horizon = now + micros(request.ahead);
        let mut receivers: Vec<(i64, String)> = Vec::new();
        let mut next_due: Option<i64> = None;
        let mut later = |at: i64| next_due = Some(next_due.map_or(at, |known: i64| known.min(at)));
        for (receiver, due) in &self.due {
            let Some((first, _)) = due.first() else {
                continue;
            };
            if request.skip.contains(receiver) {
                continue;
            }
            if *first <= horizon {
                receivers.push((*first, receiver.clone()));
            } else {
                later(*first);
            }
        }
        receivers.sort_unstable();
        let part = (request.total.messages / receivers.len().max(1)).max(1);
        let part = part.min(request.per_receiver.messages);
        let mut chosen = Vec::new();
        let mut bytes = 0;
        for (_, receiver) in &receivers {
            let (mut count, mut own_bytes) = (0, 0);
            for (at, number) in self.due.get(receiver).into_iter().flatten() {
                if !self.is_unclaimed(*number, now) {
                    continue;
                }
                let is_within_limits = count < part
                    && own_bytes < request.per_receiver.bytes
                    && chosen.len() < request.total.messages
                    && bytes < request.total.bytes;
                if *at > horizon || !is_within_limits {
                    later(*at);
                    break;
                }
                let size = self
                    .messages
                    .get(number)
                    .map_or(0, |row| row.message.body.len());
                (count, own_bytes, bytes) = (count + 1, own_bytes + size, bytes + size);
                chosen.push(*number);
            }
        }
        self.drop_outdated(&mut chosen);
        let messages = chosen
            .into_iter()
            .filter_map(|number| self.claim(number, request, now))
            .collect();
        let until = |at: i64| Duration::from_micros(u64::try_from(at - now).unwrap_or_default());
        TakenMessages {
            messages,
            next_due: next_due.map(until),
        }
    }

    /// Removes interim messages whose sender is gone and that a later message follows.
    fn drop_outdated(&mut self, chosen: &mut Vec<u64>) {
        let is_outdated = |number: u64| {
            let row = self.messages.get(&number).filter(|row| row.is_interim)?;
            let numbers = self.by_job.get(&row.job())?;
            numbers.iter().any(|later| *later > number).then_some(())
        };
        let outdated: Vec<u64> = chosen
            .iter()
            .copied()
            .filter(|number| is_outdated(*number).is_some())
            .collect();
        outdated.iter().for_each(|number| self.remove(*number));
        chosen.retain(|number| !outdated.contains(number));
    }

    /// No process sends this message, or an earlier one about its job.
    fn is_unclaimed(&self, number: u64, now: i64) -> bool {
        let Some(row) = self.messages.get(&number) else {
            return false;
        };
        let is_claimed = |row: &MessageRow| row.holder.is_some() && row.next_at > now;
        let earlier = self.by_job.get(&row.job()).into_iter().flatten();
        let mut earlier = earlier
            .filter(|known| **known < number)
            .filter_map(|known| self.messages.get(known));
        !is_claimed(row) && !earlier.any(|row| row.is_interim && is_claimed(row))
    }

    fn claim(&mut self, number: u64, request: &TakeRequest, now: i64) -> Option<OutboxMessage> {
        if !self.is_unclaimed(number, now) {
            return None;
        }
        self.reschedule(number, now + micros(request.claim.lasts));
        let row = self.messages.get_mut(&number)?;
        row.holder = Some(request.claim.holder.clone());
        Some(OutboxMessage {
            claim: Some(request.claim.clone()),
            ..row.message.clone()
        })
    }

    fn reschedule(&mut self, number: u64, at: i64) {
        if let Some(row) = self.messages.get_mut(&number) {
            let due = self.due.entry(row.message.receiver.clone()).or_default();
            due.remove(&(row.next_at, number));
            due.insert((at, number));
            row.next_at = at;
        }
    }

    /// Records the result of one attempt.
    pub(super) fn record_attempt(
        &mut self,
        id: &str,
        holder: &str,
        outcome: &SendOutcome,
        now: i64,
    ) {
        let Some(number) = self.by_id.get(id).copied() else {
            return;
        };
        let Some(row) = self.messages.get_mut(&number) else {
            return;
        };
        let is_holder = row.holder.as_deref() == Some(holder);
        match outcome {
            SendOutcome::Settled(settled) => {
                if is_holder || settled.given_up.is_none() {
                    self.remove(number);
                }
            }
            SendOutcome::Retry(pause) => {
                if !is_holder {
                    return;
                }
                row.message.attempts += 1;
                row.holder = None;
                let (is_interim, job) = (row.is_interim, row.job());
                let is_outdated = is_interim
                    && self
                        .by_job
                        .get(&job)
                        .is_some_and(|numbers| numbers.iter().any(|later| *later > number));
                if is_outdated {
                    self.remove(number);
                } else {
                    self.reschedule(number, now + micros(*pause));
                }
            }
        }
    }

    /// Ends a claim without an attempt.
    pub(super) fn release(&mut self, id: &str, holder: &str, now: i64) {
        let Some(number) = self.by_id.get(id).copied() else {
            return;
        };
        if let Some(row) = self.messages.get_mut(&number)
            && row.holder.as_deref() == Some(holder)
        {
            row.holder = None;
            self.reschedule(number, now);
        }
    }

    /// The messages that are not settled, the last created first.
    pub(super) fn list(&self, filter: &MessageFilter) -> Vec<MessageSummary> {
        let is_wanted = |message: &OutboxMessage| {
            let account = filter.account.as_ref();
            account.is_none_or(|account| *account == message.account)
                && filter.job.as_ref().is_none_or(|job| *job == message.job)
        };
        let rows = self.messages.values().rev();
        rows.filter(|row| is_wanted(&row.message))
            .take(filter.limit)
            .map(MessageRow::summary)
            .collect()
    }

    /// When the first message is due.
    pub(super) fn first_due(&self) -> Option<i64> {
        let receivers = self.due.values();
        receivers
            .filter_map(|due| due.first())
            .map(|(at, _)| *at)
            .min()
    }

    /// How many messages are not settled, and how many of each model were attempted before.
    pub(super) fn counts(&self) -> (usize, BTreeMap<String, usize>) {
        let mut retrying = BTreeMap::new();
        for row in self.messages.values() {
            if row.message.attempts > 0 {
                *retrying.entry(row.message.model.clone()).or_default() += 1;
            }
        }
        (self.messages.len(), retrying)
    }
}
