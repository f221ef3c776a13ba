//! A job that the executor has started, and its next event.

use tidegate_core::Event;
use tidegate_core::port::Running;

use super::recorder::BeginWrite;

/// A job that the executor has started.
pub(crate) struct StartedRun {
    pub(crate) running: Box<dyn Running>,
    /// How its begin is recorded; `None` when it is not.
    pub(crate) begin_write: Option<BeginWrite>,
    /// An event that was received before the job could be published.
    pub(crate) first_event: Option<Event>,
}

/// The event that was received already, or the next one.
pub(crate) async fn next_event(
    running: &mut Box<dyn Running>,
    first_event: &mut Option<Event>,
) -> Event {
    match first_event.take() {
        Some(event) => event,
        None => running.next().await,
    }
}

/// Cancels a run and discards its events.
pub(crate) async fn abandon(mut running: Box<dyn Running>) {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
}
