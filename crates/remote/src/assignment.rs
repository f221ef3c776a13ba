//! A started job and its assignment to a worker.

use std::time::Duration;

use tidegate_core::job_attempt::{AttemptEnd, JobAttempt};
use tidegate_core::remote::RemoteFact;
use tidegate_core::{Event, OutputValue, Work, clock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::event_queue::{EventSender, ReportPlace};
use crate::reports::{EXECUTION_TIMEOUT, JobReport};
use crate::worker::WorkerId;

/// A job that was started and has not ended.
pub(crate) struct RemoteJob {
    pub(crate) work: Work,
    pub(crate) events: EventSender,
    /// `None` while the job waits for another worker.
    pub(crate) assignment: Option<Assignment>,
    /// How often the job was offered to a worker.
    pub(crate) deliveries: u32,
    /// How many of these offers were not delivered: no worker saw the job then.
    pub(crate) undelivered: u32,
    /// How many workers were lost with the job.
    pub(crate) lost: u32,
    /// Stream parts that were passed on as events.
    pub(crate) emitted_parts: usize,
}

/// The worker that has a job.
pub(crate) struct Assignment {
    pub(crate) worker: WorkerId,
    /// When the job was offered; after confirmation, when it was delivered.
    pub(crate) since: Instant,
    pub(crate) state: AssignmentState,
    /// Stream parts received from this worker.
    pub(crate) parts: usize,
    /// How long the worker had the job under the previous server process.
    pub(crate) before: Duration,
    /// Whether any ping named the job.
    pub(crate) named: bool,
    /// Consecutive pings that did not name the job.
    pub(crate) missed_pings: u32,
    /// When the worker last reported progress or a part; at first, when it got the job.
    pub(crate) last_report: Instant,
}

impl Assignment {
    fn new(worker: &WorkerId, state: AssignmentState, now: Instant) -> Self {
        Self {
            worker: worker.clone(),
            since: now,
            state,
            parts: 0,
            before: Duration::ZERO,
            named: false,
            missed_pings: 0,
            last_report: now,
        }
    }
}

/// How a worker got its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AssignmentState {
    /// The response with the job is being written.
    Offered,
    /// This server delivered the job.
    Delivered,
    /// The previous server process delivered the job. Earlier reports about it are lost.
    Adopted,
}

impl RemoteJob {
    /// A job without an assignment.
    pub(crate) fn new(work: Work, events: EventSender) -> Self {
        Self {
            work,
            events,
            assignment: None,
            deliveries: 0,
            undelivered: 0,
            lost: 0,
            emitted_parts: 0,
        }
    }

    pub(crate) fn emit(&self, event: Event) {
        self.events.emit(event);
    }

    /// How long one worker may run the job.
    pub(crate) fn execution_timeout(&self) -> Option<Duration> {
        self.work
            .context
            .get(EXECUTION_TIMEOUT)?
            .parse()
            .ok()
            .map(Duration::from_millis)
    }

    /// Assigns the job to a worker and returns the number of the delivery.
    pub(crate) fn offer_to(&mut self, worker: &WorkerId, now: Instant) -> u32 {
        self.deliveries += 1;
        self.assignment = Some(Assignment::new(worker, AssignmentState::Offered, now));
        self.deliveries
    }

    /// Leaves the job with a worker that got it from the previous server process and has had it for
    /// the time `before`.
    pub(crate) fn adopted_by(&mut self, worker: &WorkerId, before: Duration, now: Instant) {
        self.assignment = Some(Assignment {
            before,
            named: true,
            ..Assignment::new(worker, AssignmentState::Adopted, now)
        });
    }

    /// Reports that the worker of the job was lost, which ends an attempt.
    pub(crate) fn report_lost_worker(&mut self, now: Instant) {
        let Some(assignment) = &self.assignment else {
            return;
        };
        self.lost += 1;
        let ended_at = clock::now();
        let took = now.saturating_duration_since(assignment.since) + assignment.before;
        self.emit(Event::Remote(RemoteFact::Lost(JobAttempt {
            number: self.lost,
            started_at: ended_at.checked_sub(took).ok(),
            ended_at: Some(ended_at),
            end: Some(AttemptEnd::Lost),
            runner: Some(assignment.worker.to_string()),
        })));
    }

    /// Ends the assignment; the job waits for another worker. Returns the previous worker.
    pub(crate) fn unassign(&mut self) -> Option<WorkerId> {
        self.emit(Event::Remote(RemoteFact::Progress(None)));
        self.emit(Event::Remote(RemoteFact::Waiting(true)));
        self.assignment.take().map(|assignment| assignment.worker)
    }

    /// Passes on a stream part or the progress that the worker of the job reports. Returns what
    /// resolves when every reader sees it; `None` when there is nothing new.
    pub(crate) fn interim_report(
        &mut self,
        report: JobReport,
        place: ReportPlace,
        now: Instant,
    ) -> Option<oneshot::Receiver<()>> {
        self.assignment.as_mut()?.last_report = now;
        match report {
            JobReport::Progress(value) => {
                let progress = Event::Remote(RemoteFact::Progress(Some(value)));
                Some(self.events.report(progress, place))
            }
            JobReport::Part(json) => self.add_part(json, place),
            JobReport::Done(_) | JobReport::StreamDone(_) => None,
        }
    }

    /// Passes on a stream part, unless a previous worker already sent it. Returns what resolves when
    /// every reader sees it.
    fn add_part(
        &mut self,
        json: bytes::Bytes,
        place: ReportPlace,
    ) -> Option<oneshot::Receiver<()>> {
        let assignment = self.assignment.as_mut()?;
        assignment.parts += 1;
        if assignment.parts <= self.emitted_parts {
            return None;
        }
        if self.emitted_parts == 0 {
            self.emit(Event::Remote(RemoteFact::Streamed));
        }
        self.emitted_parts += 1;
        let part = Event::Output(OutputValue {
            json,
            files: Vec::new(),
        });
        Some(self.events.report(part, place))
    }
}
