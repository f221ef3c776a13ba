//! Sends the terminal message of a job until the receiver accepts it or the retry window ends.
//!
//! A message of the outbox has its attempts and its settlement recorded in the store, so the next
//! server process continues where this one stops. Other messages exist in memory only.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::record::{OutboxMessage, Settlement};
use tidegate_core::store::SendOutcome;
use tokio::time::Instant;

use super::outgoing_message::{OutgoingMessage, SendVerdict};
use super::retry_buffer::RetryTicket;
use super::sender::SenderDeps;
use super::{Webhook, backoff};
use crate::random;

/// The longest pause between two attempts while the server shuts down.
const MAX_PAUSE_WHILE_CLOSING: Duration = Duration::from_secs(5);

/// Sends a message of the outbox until it is delivered or given up, and records which.
pub(crate) async fn deliver(deps: &Arc<SenderDeps>, webhook: Arc<Webhook>, stored: OutboxMessage) {
    let message = OutgoingMessage::from_outbox(deps, &webhook, &stored);
    let given_up = match send_until_settled(deps, &message, Some(&stored)).await {
        DeliveryOutcome::Delivered => None,
        DeliveryOutcome::GivenUp(why) => Some(why.to_owned()),
        DeliveryOutcome::LeftToNextServer => return,
    };
    let settlement = Settlement {
        at: Timestamp::now(),
        given_up,
    };
    record_attempt(deps, &stored, SendOutcome::Settled(settlement)).await;
}

/// Sends a message that is not in the outbox until it is delivered or given up.
pub(super) async fn deliver_unrecorded(deps: &SenderDeps, message: &OutgoingMessage) {
    send_until_settled(deps, message, None).await;
}

async fn record_attempt(deps: &SenderDeps, stored: &OutboxMessage, outcome: SendOutcome) {
    if let Some(store) = &deps.store
        && let Err(error) = store.record_attempt(&stored.id, outcome).await
    {
        tracing::warn!(
            message = stored.id,
            error = %chain(&error),
            "failed to record webhook attempt, the webhook may be sent again"
        );
    }
}

/// How sending a message ended.
enum DeliveryOutcome {
    Delivered,
    GivenUp(&'static str),
    /// The server shuts down; the next process sends the message.
    LeftToNextServer,
}

async fn send_until_settled(
    deps: &SenderDeps,
    message: &OutgoingMessage,
    stored: Option<&OutboxMessage>,
) -> DeliveryOutcome {
    let deadline = Instant::now() + deps.retry_for;
    let mut ticket: Option<RetryTicket> = None;
    for failed in 1.. {
        let retry_after = match message.send().await {
            SendVerdict::Delivered => return DeliveryOutcome::Delivered,
            SendVerdict::Never(why) => return give_up(message, why),
            SendVerdict::Later { retry_after } => retry_after,
        };
        if stored.is_some() && deps.closing.is_cancelled() {
            return DeliveryOutcome::LeftToNextServer;
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return give_up(message, "not delivered within --webhook-retry-for");
        }
        let ticket = ticket.get_or_insert_with(|| deps.retry_buffer.enter(message.bytes()));
        let pause = backoff::pause(failed, random::fraction(), retry_after).min(remaining);
        if let (Some(stored), Ok(next)) = (stored, Timestamp::now().checked_add(pause)) {
            record_attempt(deps, stored, SendOutcome::Retry(next)).await;
        }
        if wait_for_next_attempt(deps, message, ticket, pause)
            .await
            .is_break()
        {
            return give_up(message, "too many webhooks wait for a retry");
        }
    }
    DeliveryOutcome::Delivered
}

fn give_up(message: &OutgoingMessage, why: &'static str) -> DeliveryOutcome {
    message.fail(why);
    DeliveryOutcome::GivenUp(why)
}

/// Waits for the next attempt; breaks when the retry buffer has evicted the message.
async fn wait_for_next_attempt(
    deps: &SenderDeps,
    message: &OutgoingMessage,
    ticket: &RetryTicket,
    pause: Duration,
) -> ControlFlow<()> {
    let was_closing = deps.closing.is_cancelled();
    let pause = if was_closing {
        pause.min(MAX_PAUSE_WHILE_CLOSING)
    } else {
        pause
    };
    message.set_next_attempt(pause);
    tokio::select! {
        () = tokio::time::sleep(pause) => ControlFlow::Continue(()),
        () = message.send_now.notified() => ControlFlow::Continue(()),
        // One more attempt before the server exits.
        () = deps.closing.cancelled(), if !was_closing => ControlFlow::Continue(()),
        () = ticket.evicted() => ControlFlow::Break(()),
    }
}
