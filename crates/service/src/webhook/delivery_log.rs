//! What became of the last messages: who was told what and when, and what the receiver said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::record::SettledMessage;
use tidegate_core::{Account, JobId};
use tidegate_net::{Url, host_of};
use tokio::sync::Notify;

use super::{Webhook, WebhookEvent};
use crate::job::Job;

/// How many messages are remembered.
const MAX_RECORDS: usize = 1000;
/// How many attempts of one message are remembered; a day of them is less.
const MAX_ATTEMPTS: usize = 100;

/// The last messages.
#[derive(Default)]
pub struct DeliveryLog {
    ring: Mutex<DeliveryRing>,
}

#[derive(Default)]
struct DeliveryRing {
    next: u64,
    /// Oldest first, by rising number.
    records: VecDeque<LogEntry>,
}

struct LogEntry {
    number: u64,
    record: DeliveryRecord,
    handle: ReplayHandle,
}

/// How a message that is remembered can be sent once more.
#[derive(Clone)]
pub(super) struct ReplayHandle {
    /// What it is about, as long as anybody knows it.
    pub(super) job: Weak<Job>,
    pub(super) webhook: Arc<Webhook>,
    /// Ends the pause before the next attempt.
    pub(super) send_now: Arc<Notify>,
}

/// One message and what became of it.
#[derive(Debug, Clone)]
pub struct DeliveryRecord {
    /// The message's own id, the same over all attempts.
    pub id: String,
    /// Whose job it is about.
    pub account: Account,
    /// The job.
    pub job: JobId,
    /// For which model the job was, `owner/name`; empty if that is not known.
    pub model: String,
    /// What it says.
    pub event: WebhookEvent,
    /// Who is told: host and port, nothing else of the address.
    pub host: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// What became of it.
    pub state: DeliveryState,
    /// Why nothing more is tried.
    pub given_up: Option<String>,
    /// How often servers before this one have sent it.
    pub earlier_attempts: u32,
    /// Every time it was sent, oldest first.
    pub attempts: Vec<Attempt>,
    /// When it is sent again.
    pub next_attempt_at: Option<Timestamp>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is on its way for the first time.
    Sending,
    /// The receiver took it.
    Delivered,
    /// It was not taken and will be, or is being, sent again.
    Retrying,
    /// It was not taken and nothing more is tried.
    Failed,
}

/// One time that a message was sent.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// How long until the receiver answered, or was given up.
    pub took: Duration,
    /// The status of its answer, or why there was none.
    pub result: Result<u16, String>,
}

impl DeliveryLog {
    /// The messages that are filter, newest first.
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

    /// The message with this id, if it is remembered.
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

    /// Notes a message; the number is for [`DeliveryLog::change`]. One that is sent again goes on where it was.
    pub(super) fn open(&self, record: DeliveryRecord, handle: ReplayHandle) -> u64 {
        self.with(|ring| {
            if let Some(known) = ring
                .records
                .iter_mut()
                .rev()
                .find(|entry| entry.record.id == record.id)
            {
                known.record.settle(DeliveryState::Sending, None);
                known.handle = handle;
                return known.number;
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

    /// Changes a record, unless it has been forgotten.
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
    /// The oldest that is settled: an operator looks for those that are not.
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

impl From<&SettledMessage> for DeliveryRecord {
    fn from(message: &SettledMessage) -> Self {
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
            state: if message.settled.given_up.is_some() {
                DeliveryState::Failed
            } else {
                DeliveryState::Delivered
            },
            given_up: message.settled.given_up.clone(),
            earlier_attempts: message.attempts,
            attempts: Vec::new(),
            next_attempt_at: None,
        }
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
    fn the_newest_come_first_and_those_that_are_not_settled_stay() {
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
    fn a_message_that_is_sent_again_goes_on_where_it_was() {
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
    fn a_forgotten_message_changes_nothing() {
        let deliveries = DeliveryLog::default();
        let first = deliveries.open(record("first", DeliveryState::Delivered), handle());
        for i in 0..MAX_RECORDS {
            deliveries.open(record(&i.to_string(), DeliveryState::Delivered), handle());
        }
        deliveries.change(first, |_| panic!("it was forgotten"));
    }
}
