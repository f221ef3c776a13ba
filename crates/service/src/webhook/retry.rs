//! Sends the terminal message of a job that is not recorded, until the receiver accepts it or the
//! retry window ends. It exists in memory only: servers without a store have no outbox.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;

use super::backoff;
use super::outgoing_message::{OutgoingMessage, SendVerdict};
use super::retry_buffer::RetryTicket;
use super::sender::SenderDeps;
use crate::random;

/// The longest pause between two attempts while the server shuts down.
const MAX_PAUSE_WHILE_CLOSING: Duration = Duration::from_secs(5);

/// Sends a message that is not in the outbox until it is delivered or given up.
pub(super) async fn deliver_unrecorded(deps: &SenderDeps, message: &OutgoingMessage) {
    let deadline = Instant::now() + deps.retry_for;
    let mut ticket: Option<RetryTicket> = None;
    for failed in 1.. {
        let retry_after = match message.send().await {
            SendVerdict::Delivered => return message.delivered(),
            SendVerdict::Never(why) => return message.fail(why),
            SendVerdict::Later { retry_after } => retry_after,
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return message.fail("not delivered within --webhook-retry-for");
        }
        let ticket = ticket.get_or_insert_with(|| deps.retry_buffer.enter(message.bytes()));
        let pause = backoff::pause(failed, random::fraction(), retry_after).min(remaining);
        if wait_for_next_attempt(deps, message, ticket, pause)
            .await
            .is_break()
        {
            return message.fail("too many webhooks wait for a retry");
        }
    }
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
