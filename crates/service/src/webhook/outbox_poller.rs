//! The task that takes due messages from the store and sends them.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::outbox::TakeRequest;
use tidegate_core::store::StoreError;
use tidegate_core::{chain, planted};
use tokio::time::Instant;

use super::in_flight::InFlightMessage;
use super::outbox::Outbox;
use super::sender::SenderDeps;

/// The shortest pause between two polls.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause: another server may have left messages.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// The pause after the store failed.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);
/// Longer than any pause between two attempts.
const ALL_PENDING: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Takes messages until the outbox is stopped.
pub(crate) struct OutboxPoller {
    outbox: Arc<Outbox>,
    /// For messages of models that are not served any more.
    senders: Arc<SenderDeps>,
}

impl OutboxPoller {
    pub(crate) fn new(outbox: Arc<Outbox>, senders: Arc<SenderDeps>) -> Self {
        Self { outbox, senders }
    }

    pub(crate) async fn run(self) {
        let closing = self.senders.closing.clone();
        let mut is_closing = false;
        loop {
            tokio::select! {
                biased;
                // Receivers may be reachable now, and the next process may start much later: messages
                // that wait for a retry are sent once more.
                () = closing.cancelled(), if !is_closing => {
                    is_closing = true;
                    self.poll(ALL_PENDING).await;
                }
                () = self.outbox.stopped.cancelled() => return,
                () = self.outbox.in_flight.freed() => self.outbox.poll_within(Duration::ZERO),
                () = self.outbox.poll_due() => {
                    self.poll(Duration::ZERO).await;
                    tokio::time::sleep(MIN_PAUSE).await;
                }
            }
        }
    }

    /// Takes messages once, and starts to send them.
    async fn poll(&self, ahead: Duration) {
        // What becomes due meanwhile makes the next poll earlier.
        self.outbox.postpone_poll(MAX_PAUSE);
        match self.take(ahead).await {
            Ok(messages) => messages.into_iter().for_each(|message| self.send(message)),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to read pending webhooks");
                self.outbox.poll_within(PAUSE_AFTER_ERROR);
            }
        }
    }

    async fn take(&self, ahead: Duration) -> Result<Vec<InFlightMessage>, StoreError> {
        let in_flight = &self.outbox.in_flight;
        let Some(room) = in_flight.reserve() else {
            return Ok(Vec::new());
        };
        let request = TakeRequest {
            claim: self.outbox.claim.clone(),
            ahead,
            total: room.total,
            per_receiver: room.per_receiver,
            skip: room.full_receivers,
        };
        let asked_at = Instant::now();
        let taken = self.outbox.store.take_messages(request).await;
        let taken = taken.inspect_err(|_| drop(in_flight.fill(Vec::new())))?;
        if let Some(next) = taken.next_due {
            self.outbox.poll_within(next);
        }
        let messages = in_flight.fill(taken.messages);
        // The reply is late: the claims would end before the attempts, and other processes would send later
        // messages about the same jobs meanwhile.
        if asked_at.elapsed() > self.outbox.longest_take() && !messages.is_empty() {
            tracing::debug!(
                count = messages.len(),
                "left webhooks that were read too late"
            );
            self.outbox.poll_within(self.outbox.claim.lasts);
            return Ok(Vec::new());
        }
        Ok(messages)
    }

    fn send(&self, message: InFlightMessage) {
        planted!(LostMessage, return);
        planted!(NewMessageId, let message = { let mut message = message; message.message.id = super::message_id(); message });
        let senders = self.outbox.senders_of(&message.message.model);
        let senders = senders.unwrap_or_else(|| Arc::clone(&self.senders));
        self.outbox.spawn_attempt(senders, message);
    }
}
