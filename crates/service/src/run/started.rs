//! A job that the executor has started, and its next event.

use tidegate_core::Event;
use tidegate_core::port::Running;

use crate::snapshot::TerminalState;

/// A job that the executor has started.
pub(crate) struct StartedRun {
    pub(crate) running: Box<dyn Running>,
    /// An event that was received before the job could be published.
    pub(crate) first_event: Option<Event>,
}

/// How the task of a job ends.
#[derive(Debug)]
pub(crate) enum TrackerResult {
    /// The job ends in this state.
    Ended(TerminalState),
    /// The job is left to the next server process, which finds it as it was; or it was never
    /// accepted.
    Left,
    /// The job has ended elsewhere, or another server has its lease.
    NotOurs,
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
