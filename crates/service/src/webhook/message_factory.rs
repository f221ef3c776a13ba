//! Creates the messages that a store keeps until they are sent.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::clock;
use tidegate_core::outbox::{MessageClaim, OutboxMessage};
use tidegate_net::host_of;

use super::{Webhook, message_id};
use crate::job::Job;

/// Creates messages for the outbox.
#[derive(Debug, Clone)]
pub(crate) struct MessageFactory {
    /// The retry window of new messages.
    pub(crate) retry_for: Duration,
    /// The claim of the process that sends them first; without it they are due at once.
    pub(crate) claim: Option<MessageClaim>,
}

impl MessageFactory {
    /// A message about a job.
    pub(crate) fn message(&self, webhook: &Webhook, job: &Job, body: Bytes) -> OutboxMessage {
        let now = clock::now();
        OutboxMessage {
            id: message_id(),
            account: job.account().clone(),
            job: job.id().clone(),
            model: job.target().model.clone(),
            receiver: host_of(&webhook.url),
            hook: webhook.to_spec(),
            body,
            created_at: now,
            retry_until: now.checked_add(self.retry_for).ok(),
            attempts: 0,
            claim: self.claim.clone(),
        }
    }
}
