//! A job that the model has, and what it says.

use tidegate_core::Event;
use tidegate_core::port::Running;

use crate::run::recorder::BeginWrite;

/// A job that the model has.
pub(crate) struct StartedRun {
    pub(crate) running: Box<dyn Running>,
    pub(crate) begin_write: Option<BeginWrite>,
    /// What it has said already.
    pub(crate) said: Option<Event>,
}

/// What was said already, or the next.
pub(crate) async fn next_of(running: &mut Box<dyn Running>, said: &mut Option<Event>) -> Event {
    match said.take() {
        Some(event) => event,
        None => running.next().await,
    }
}

/// Stops the model; nobody wants what it still says.
pub(crate) async fn abandon(mut running: Box<dyn Running>) {
    running.cancel();
    while !matches!(running.next().await, Event::Ended(_)) {}
}
