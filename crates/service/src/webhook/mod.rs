//! Telling somebody's server how a job goes.
//!
//! Each job with a webhook has one sender task, so its messages leave in order and never tell a lower
//! state after a higher one. Messages before the end are sent once and may be lost; the last one is
//! sent until somebody takes it or the time for it is over. [`Deliveries`] remembers what became of them.

mod deliveries;
mod parcel;
mod schedule;
mod sender;
mod signature;
mod waiting;

use bytes::Bytes;
use tidegate_net::Url;
use tidegate_net::header::HeaderMap;

use crate::Snapshot;

pub use deliveries::{Attempt, Deliveries, DeliveryRecord, DeliveryState};
pub(crate) use sender::{Sender, SenderTools};
pub use signature::{BadSecret, Secrets};
pub(crate) use waiting::{Bounds, Waiting};

/// Where and how to tell.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The receiver.
    pub url: Url,
    /// What it wants to hear.
    pub filter: EventFilter,
    /// Sent along; the trace of the request that made the job, for instance.
    pub headers: HeaderMap,
    /// How the dialect of the caller writes a job.
    pub body: fn(&Snapshot) -> Bytes,
}

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebhookEvent {
    /// The model began.
    Start,
    /// The model gave a value.
    Output,
    /// The model printed something.
    Logs,
    /// The job is over.
    Completed,
}

/// Which kinds of message a receiver wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFilter(u8);

impl EventFilter {
    /// Everything.
    pub const ALL: Self = Self(0b1111);

    /// Only these.
    pub fn only(events: impl IntoIterator<Item = WebhookEvent>) -> Self {
        Self(events.into_iter().fold(0, |bits, event| bits | bit(event)))
    }

    /// Whether this kind is wanted.
    pub fn wants(self, event: WebhookEvent) -> bool {
        self.0 & bit(event) != 0
    }
}

fn bit(event: WebhookEvent) -> u8 {
    match event {
        WebhookEvent::Start => 1,
        WebhookEvent::Output => 2,
        WebhookEvent::Logs => 4,
        WebhookEvent::Completed => 8,
    }
}
