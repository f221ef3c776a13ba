//! The log of recent webhook messages: their attempts, the responses and the results.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::outbox::{MessageState, MessageSummary};
use tidegate_core::{Account, JobId};
use tidegate_net::{Url, host_of};
use tokio::sync::Notify;

use super::{Webhook, WebhookEvent};
use crate::job::Job;

/// The number of messages in the log.
const MAX_RECORDS: usize = 1000;
/// The number of attempts in the log per message; the retries of one day are fewer.
const MAX_ATTEMPTS: usize = 100;

/// The most recent messages.
#[derive(Default)]
pub struct DeliveryLog {
    ring: Mutex<DeliveryRing>,
}

#[derive(Default)]
struct DeliveryRing {
    next: u64,
    /// In ascending order of their numbers, the oldest first.
    records: VecDeque<LogEntry>,
}

struct LogEntry {
    number: u64,
    record: DeliveryRecord,
    handle: ReplayHandle,
}

/// What is needed to send a message of the log again.
#[derive(Clone)]
pub(super) struct ReplayHandle {
    /// The job of the message, if it is still in memory.
    pub(super) job: Weak<Job>,
    pub(super) webhook: Arc<Webhook>,
    /// Ends the pause before the next attempt.
    pub(super) send_now: Arc<Notify>,
}

/// One message with its attempts and its result.
#[derive(Debug, Clone)]
pub struct DeliveryRecord {
    /// The id of the message, the same for all attempts.
    pub id: String,
    /// The account that owns the job.
    pub account: Account,
    /// The job.
    pub job: JobId,
    /// The model of the job, `owner/name`; empty if it is unknown.
    pub model: String,
    /// The event of the message.
    pub event: WebhookEvent,
    /// Host and port of the receiver; the rest of the URL may contain secrets.
    pub host: String,
    /// When the message was created.
    pub created_at: Timestamp,
    /// The state of the delivery.
    pub state: DeliveryState,
    /// Why the server gave up on the message.
    pub given_up: Option<String>,
    /// The number of attempts of previous server processes.
    pub earlier_attempts: u32,
    /// The attempts of this process, oldest first.
    pub attempts: Vec<Attempt>,
    /// When the next attempt starts.
    pub next_attempt_at: Option<Timestamp>,
}

/// The state of the delivery of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// The first attempt is due or in progress.
    Sending,
    /// The receiver accepted the message.
    Delivered,
    /// An attempt failed; the next one is scheduled or in progress.
    Retrying,
    /// The server gave up on the message.
    Failed,
}

/// One attempt to send a message.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// When the attempt started.
    pub at: Timestamp,
    /// The time until the response or the failure.
    pub took: Duration,
    /// The status of the response, or why there was none.
    pub result: Result<u16, String>,
}

impl DeliveryLog {
    /// The messages that `filter` accepts, newest first.
    pub fn list(&self, filter: impl Fn(&DeliveryRecord) -> bool) -> Vec<DeliveryRecord> {
        self.with(|ring| {
            ring.records
                .iter()
                .rev()
                .map(|entry| &entry.record)
                .filter(|record| filter(record))
                .cloned()
                .collect()
        })
    }

    /// The message with this id, if it is in the log.
    pub(super) fn find(&self, id: &str) -> Option<(DeliveryRecord, ReplayHandle)> {
        self.with(|ring| {
            let entry = ring
                .records
                .iter()
                .rev()
                .find(|entry| entry.record.id == id)?;
            Some((entry.record.clone(), entry.handle.clone()))
        })
    }

    /// Adds a message; returns its number for [`DeliveryLog::change`]. A replayed message continues
    /// its existing record.
    pub(super) fn open(&self, record: DeliveryRecord, handle: ReplayHandle) -> u64 {
        self.with(|ring| {
            if let Some(existing) = ring
                .records
                .iter_mut()
                .rev()
                .find(|entry| entry.record.id == record.id)
            {
                existing.record.settle(record.state, None);
                existing.handle = handle;
                return existing.number;
            }
            if ring.records.len() >= MAX_RECORDS {
                ring.evict_one();
            }
            let number = ring.next;
            ring.next += 1;
            ring.records.push_back(LogEntry {
                number,
                record,
                handle,
            });
            number
        })
    }

    /// Changes a record, unless it was evicted.
    pub(super) fn change(&self, number: u64, change: impl FnOnce(&mut DeliveryRecord)) {
        self.with(|ring| {
            if let Ok(index) = ring
                .records
                .binary_search_by_key(&number, |entry| entry.number)
            {
                change(&mut ring.records[index].record);
            }
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut DeliveryRing) -> R) -> R {
        f(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DeliveryRing {
    /// Removes the oldest settled message, because an operator needs the others; without one, the
    /// oldest.
    fn evict_one(&mut self) {
        let settled = |record: &DeliveryRecord| {
            matches!(
                record.state,
                DeliveryState::Delivered | DeliveryState::Failed
            )
        };
        let index = self
            .records
            .iter()
            .position(|entry| settled(&entry.record))
            .unwrap_or(0);
        self.records.remove(index);
    }
}

impl From<&MessageSummary> for DeliveryRecord {
    fn from(message: &MessageSummary) -> Self {
        let (state, given_up, next_attempt_at) = match &message.state {
            MessageState::Waiting(next_at) => (pending_state(message), None, Some(*next_at)),
            MessageState::Claimed => (pending_state(message), None, None),
            MessageState::Settled(settled) => match &settled.given_up {
                Some(why) => (DeliveryState::Failed, Some(why.clone()), None),
                None => (DeliveryState::Delivered, None, None),
            },
        };
        Self {
            id: message.id.clone(),
            account: message.account.clone(),
            job: message.job.clone(),
            model: message.model.clone(),
            event: WebhookEvent::Completed,
            host: Url::parse(&message.url)
                .map(|url| host_of(&url))
                .unwrap_or_default(),
            created_at: message.created_at,
            state,
            given_up,
            earlier_attempts: message.attempts,
            attempts: Vec::new(),
            next_attempt_at,
        }
    }
}

fn pending_state(message: &MessageSummary) -> DeliveryState {
    match message.attempts {
        0 => DeliveryState::Sending,
        _ => DeliveryState::Retrying,
    }
}

impl DeliveryRecord {
    pub(super) fn attempted(&mut self, attempt: Attempt) {
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
        self.next_attempt_at = None;
    }

    pub(super) fn settle(&mut self, state: DeliveryState, given_up: Option<&str>) {
        self.state = state;
        self.given_up = given_up.map(str::to_owned);
        self.next_attempt_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(job: &str, state: DeliveryState) -> DeliveryRecord {
        DeliveryRecord {
            id: format!("msg_{job}"),
            account: Account::ANONYMOUS,
            job: JobId::parse(job).unwrap(),
            model: "ann/echo".to_owned(),
            event: WebhookEvent::Completed,
            host: "example.com".to_owned(),
            created_at: Timestamp::now(),
            state,
            given_up: None,
            earlier_attempts: 0,
            attempts: Vec::new(),
            next_attempt_at: None,
        }
    }

    fn handle() -> ReplayHandle {
        let url = Url::parse("http://example.com").unwrap();
        let renderer = crate::WebhookRenderer::new(|_| bytes::Bytes::new());
        let webhook = Webhook {
            url,
            filter: crate::EventFilter::ALL,
            headers: Default::default(),
            updates: tidegate_core::policy::UpdatePolicy::Newest,
            origin: None,
            streams: false,
            streams_files: false,
            renderer,
        };
        ReplayHandle {
            job: Weak::new(),
            webhook: Arc::new(webhook),
            send_now: Arc::default(),
        }
    }

    #[test]
    fn the_newest_are_listed_first_and_unsettled_messages_stay() {
        let deliveries = DeliveryLog::default();
        let waiting = deliveries.open(record("waiting", DeliveryState::Retrying), handle());
        for i in 0..MAX_RECORDS + 10 {
            deliveries.open(record(&i.to_string(), DeliveryState::Delivered), handle());
        }
        let all = deliveries.list(|_| true);
        assert_eq!(all.len(), MAX_RECORDS);
        assert_eq!(
            (all[0].job.as_str(), all[MAX_RECORDS - 1].job.as_str()),
            ("1009", "waiting")
        );
        deliveries.change(waiting, |record| {
            record.settle(DeliveryState::Failed, Some("enough"))
        });
        let found = deliveries.list(|record| record.job.as_str() == "waiting");
        assert_eq!(
            (found[0].state, found[0].given_up.as_deref()),
            (DeliveryState::Failed, Some("enough"))
        );
    }

    #[test]
    fn a_replayed_message_continues_its_record() {
        let deliveries = DeliveryLog::default();
        let first = deliveries.open(record("a", DeliveryState::Sending), handle());
        deliveries.open(record("b", DeliveryState::Sending), handle());
        deliveries.change(first, |record| {
            record.settle(DeliveryState::Failed, Some("enough"))
        });
        assert_eq!(
            deliveries.open(record("a", DeliveryState::Sending), handle()),
            first
        );
        let found = deliveries.find("msg_a").unwrap().0;
        assert_eq!(
            (found.state, found.given_up),
            (DeliveryState::Sending, None)
        );
        assert_eq!(deliveries.list(|_| true).len(), 2);
    }

    #[test]
    fn a_change_of_an_evicted_message_is_ignored() {
        let deliveries = DeliveryLog::default();
        let first = deliveries.open(record("first", DeliveryState::Delivered), handle());
        for i in 0..MAX_RECORDS {
            deliveries.open(record(&i.to_string(), DeliveryState::Delivered), handle());
        }
        deliveries.change(first, |_| panic!("the message was evicted"));
    }
}
