//! A job that was begun, and the worker that has it.

use std::time::Duration;

use serde_json::Value;
use tidegate_core::{Event, OutputValue, Work};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::reports::{EXECUTION_TIMEOUT, ReportOutcome, note, noted};
use crate::worker::WorkerId;

/// A job that was begun and is not over.
pub(crate) struct RemoteJob {
    pub(crate) work: Work,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// Absent while it waits for another worker.
    pub(crate) assignment: Option<Assignment>,
    /// AssignmentState often it was sent to a worker.
    pub(crate) deliveries: u32,
    /// AssignmentState many of them came back on the way: no worker has seen the job then.
    pub(crate) undelivered: u32,
    /// Parts that were told.
    pub(crate) told: usize,
}

/// The worker that has a job.
pub(crate) struct Assignment {
    pub(crate) worker: WorkerId,
    /// When it was sent; when it arrived, since then.
    pub(crate) since: Instant,
    pub(crate) how: AssignmentState,
    /// Parts that came from this worker.
    pub(crate) parts: usize,
    /// AssignmentState long it had the job before, from another server.
    pub(crate) before: Duration,
    /// Whether a ping has ever named the job.
    pub(crate) named: bool,
    /// Pings in a row that did not.
    pub(crate) unnamed: u32,
}

impl Assignment {
    fn new(worker: &WorkerId, how: AssignmentState, now: Instant) -> Self {
        Self {
            worker: worker.clone(),
            since: now,
            how,
            parts: 0,
            before: Duration::ZERO,
            named: false,
            unnamed: 0,
        }
    }
}

/// AssignmentState a worker has got its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignmentState {
    /// Not yet: it is on its way.
    Offered,
    /// From us.
    Delivered,
    /// From a server before this one. What it said about the job before is lost.
    Adopted,
}

impl RemoteJob {
    /// In nobody's hands.
    pub(crate) fn new(work: Work, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            work,
            events,
            assignment: None,
            deliveries: 0,
            undelivered: 0,
            told: 0,
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        // Whoever does not listen any more is about to cancel it.
        self.events.send(event).ok();
    }

    /// AssignmentState long one worker may have it.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.work
            .context
            .get(EXECUTION_TIMEOUT)?
            .parse()
            .ok()
            .map(Duration::from_millis)
    }

    /// It is on its way to a worker; the number of the delivery.
    pub(crate) fn send_to(&mut self, worker: &WorkerId, now: Instant) -> u32 {
        self.deliveries += 1;
        self.assignment = Some(Assignment::new(worker, AssignmentState::Offered, now));
        self.deliveries
    }

    /// A worker has it from a server before this one, for so long already.
    pub(crate) fn is_with(&mut self, worker: &WorkerId, before: Duration, now: Instant) {
        self.assignment = Some(Assignment {
            before,
            named: true,
            ..Assignment::new(worker, AssignmentState::Adopted, now)
        });
    }

    /// It is in nobody's hands, and waits for another worker.
    pub(crate) fn waits(&mut self) -> Option<WorkerId> {
        self.tell(noted(note::PROGRESS, Value::Null));
        self.tell(noted(note::WAITS, true.into()));
        self.assignment.take().map(|assignment| assignment.worker)
    }

    /// Parts that a worker before this one has given are not told again.
    pub(crate) fn part(&mut self, json: bytes::Bytes) -> ReportOutcome {
        let Some(assignment) = &mut self.assignment else {
            return ReportOutcome::Ignored;
        };
        assignment.parts += 1;
        if assignment.parts <= self.told {
            return ReportOutcome::Ignored;
        }
        if self.told == 0 {
            self.tell(noted(note::STREAMED, true.into()));
        }
        self.told += 1;
        self.tell(Event::Output(OutputValue {
            json,
            files: Vec::new(),
        }));
        ReportOutcome::Applied
    }
}
