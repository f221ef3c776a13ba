//! The outbox: the final webhook messages of jobs, stored until they are delivered or given up.
//!
//! The store holds the schedule. A server claims the messages that are due, makes one attempt for
//! each, and records the result. A claim ends by itself, so that another server can send the
//! messages of one that died. The clock of the store decides when a message is due and when a claim
//! ends: callers pass durations.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::WebhookSpec;
use crate::{Account, JobId, wire};

/// The final webhook message about a job, stored until the receiver has accepted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxMessage {
    /// The id of the message, the same for all attempts.
    pub id: String,
    /// The account that owns the job.
    #[serde(with = "wire::account")]
    pub account: Account,
    /// The job that the message is about.
    pub job: JobId,
    /// The model that the job was for, `owner/name`.
    pub model: String,
    /// Host and port of the receiver. Messages to one receiver share a limit.
    pub receiver: String,
    /// The webhook that receives the message.
    pub hook: WebhookSpec,
    /// The body of the request.
    #[serde(with = "wire::json")]
    pub body: Bytes,
    /// When the message was created.
    pub created_at: Timestamp,
    /// The end of the retry window: an attempt that fails at this time or later is the last one.
    /// Absent in messages of earlier layouts of the store.
    pub retry_until: Option<Timestamp>,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The server that makes the next attempt. A message that is stored without a claim is due at
    /// once.
    pub claim: Option<MessageClaim>,
}

/// The exclusive right of one server to make the next attempt to send a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageClaim {
    /// The server, different for each of its processes.
    pub holder: String,
    /// How long the claim lasts from the moment at which it is stored. Then any server can claim
    /// the message.
    #[serde(with = "wire::milliseconds")]
    pub lasts: Duration,
}

/// A number of messages and the bytes of their bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageLimits {
    /// The maximum number of messages.
    pub messages: usize,
    /// As long as the bodies have fewer bytes, one more message is taken.
    pub bytes: usize,
}

/// A request for messages that are due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeRequest {
    /// The claim that the messages get.
    pub claim: MessageClaim,
    /// Messages that no server has claimed are taken this long before they are due.
    pub ahead: Duration,
    /// The limits of all messages together.
    pub total: MessageLimits,
    /// The limits of the messages to one receiver.
    pub per_receiver: MessageLimits,
    /// The receivers whose messages are not taken.
    pub skip: Vec<String>,
}

/// The messages that a server has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenMessages {
    /// The messages.
    pub messages: Vec<OutboxMessage>,
    /// The time until more messages may be due: zero if a limit left some, absent if no others are
    /// pending. Skipped receivers do not count.
    pub next_due: Option<Duration>,
}

/// The result of one attempt to send an outbox message.
#[derive(Debug, Clone, PartialEq)]
pub enum SendOutcome {
    /// The receiver has not accepted the message; the next attempt is due after this time.
    Retry(Duration),
    /// There are no more attempts.
    Settled(Settlement),
}

/// The end of the delivery of an outbox message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// When the delivery ended.
    pub at: Timestamp,
    /// Why the server gave up; absent when the receiver has accepted the message.
    pub given_up: Option<String>,
}

/// The result of a request to send a message at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// The message is pending and due.
    Due,
    /// A server has claimed the message: an attempt is in progress.
    Claimed,
    /// There is no such message.
    Unknown,
}

/// A filter for outbox messages. An absent field matches every message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// The account that owns the job.
    pub account: Option<Account>,
    /// The job that the message is about.
    pub job: Option<JobId>,
    /// The maximum number of pending messages, and of settled ones.
    pub limit: usize,
}

/// An outbox message without its body, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSummary {
    /// The id of the message.
    pub id: String,
    /// The account that owns the job.
    pub account: Account,
    /// The job that the message is about.
    pub job: JobId,
    /// The model that the job was for, `owner/name`.
    pub model: String,
    /// The URL of the webhook.
    pub url: String,
    /// When the message was created.
    pub created_at: Timestamp,
    /// The number of attempts.
    pub attempts: u32,
    /// Whether the message is sent, waits, or is settled.
    pub state: MessageState,
}

/// The state of an outbox message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageState {
    /// The next attempt is due at this time.
    Waiting(Timestamp),
    /// A server has claimed the message.
    Claimed,
    /// There are no more attempts. The message is kept for a while, so that it can be sent again.
    Settled(Settlement),
}

/// The number of messages that are not settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// All of them.
    pub pending: usize,
    /// Those that were attempted before, by model.
    pub retrying: BTreeMap<String, usize>,
}
