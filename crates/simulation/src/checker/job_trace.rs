//! What was seen of one job, and the invariants that concern it alone.

use serde::Deserialize;
use tidegate_core::Status;
use tidegate_core::record::JobSpec;
use tidegate_core::store::JobFinish;

use super::{LATE_END, LATE_START, milliseconds};

/// The account that has most of the jobs.
pub(crate) const HEAVY_ACCOUNT: &str = "heavy";

/// The error of a job whose directors were lost contains this.
const LOST: &str = "was lost";

/// An invariant that is broken, and how.
type Broken = (&'static str, String);

/// What was seen of a job.
pub(super) struct JobTrace {
    pub(super) created: u64,
    pub(super) is_heavy: bool,
    /// Milliseconds since the start of the run.
    deadline: Option<u64>,
    has_webhook: bool,
    pub(super) is_canceled: bool,
    /// Leases that count as runs.
    pub(super) leases: u32,
    pub(super) executions: u32,
    pub(super) last_execution: Option<Execution>,
    pub(super) first_start: Option<u64>,
    pub(super) end: Option<(u64, Status)>,
    /// The id of its last message.
    last_message: Option<String>,
    is_delivered: bool,
}

/// One execution of a job.
pub(super) struct Execution {
    pub(super) number: u32,
    pub(super) director: String,
    pub(super) began: u64,
    pub(super) state: ExecutionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecutionState {
    Running,
    Returned,
    /// Its result cannot count.
    Lost,
}

/// The output of the simulated model.
#[derive(Deserialize)]
struct ModelOutput {
    execution: u32,
}

impl JobTrace {
    pub(super) fn new(spec: &JobSpec, now: u64) -> Self {
        let lasts = spec
            .deadline
            .map(|deadline| deadline.duration_since(spec.created_at));
        let lasts = lasts.and_then(|lasts| u64::try_from(lasts.as_millis()).ok());
        let wants_end = |events: &[String]| events.iter().any(|event| event == "completed");
        Self {
            created: now,
            is_heavy: spec.account.as_str() == HEAVY_ACCOUNT,
            deadline: lasts.map(|lasts| now + lasts),
            has_webhook: spec
                .hook
                .as_ref()
                .is_some_and(|hook| wants_end(&hook.events)),
            is_canceled: false,
            leases: 0,
            executions: 0,
            last_execution: None,
            first_start: None,
            end: None,
            last_message: None,
            is_delivered: false,
        }
    }

    /// Whether nothing more is expected to happen.
    pub(super) fn is_settled(&self) -> bool {
        self.end.is_some() && (self.is_delivered || !self.has_webhook)
    }

    /// Whether an execution may start now.
    pub(super) fn late_start(&self, now: u64) -> Option<Broken> {
        let late = milliseconds(LATE_START);
        if let Some((ended, status)) = self.end
            && now > ended + late
        {
            let text = format!("an execution starts, but the job is {status:?} since {ended} ms");
            return Some(("I06", text));
        }
        let deadline = self.deadline?;
        (now > deadline + late).then(|| {
            let text = format!("an execution starts after the deadline at {deadline} ms");
            ("I25", text)
        })
    }

    /// Whether the job may end like this.
    pub(super) fn check_end(&self, now: u64, finish: &JobFinish, max_attempts: u32) -> Vec<Broken> {
        let status = finish.status;
        let mut broken = Vec::new();
        if let Some((_, earlier)) = self.end {
            broken.push(("I02", format!("{status:?} although it is {earlier:?}")));
        }
        if self.is_canceled && status != Status::Canceled {
            let text = format!("a cancel was acknowledged, but the job is {status:?}");
            broken.push(("I07", text));
        }
        if let Some(deadline) = self.deadline
            && now > deadline + milliseconds(LATE_END)
        {
            broken.push((
                "I25",
                format!("it ends long after its deadline at {deadline} ms"),
            ));
        }
        broken.extend(self.check_result(finish, max_attempts));
        broken
    }

    /// A job succeeds with the output of its last execution, and is lost only if all its runs were.
    fn check_result(&self, finish: &JobFinish, max_attempts: u32) -> Option<Broken> {
        let completion = &finish.completion;
        match finish.status {
            Status::Succeeded => {
                let output: Option<ModelOutput> = completion
                    .output
                    .as_ref()
                    .and_then(|json| serde_json::from_slice(json).ok());
                let number = output.map_or(0, |output| output.execution);
                (number != self.executions).then(|| {
                    let text = format!(
                        "it ends with the result of execution {number} of {}",
                        self.executions
                    );
                    ("I22", text)
                })
            }
            Status::Failed => {
                let error = completion.error.as_deref().unwrap_or_default();
                (error.contains(LOST) && self.leases < max_attempts && self.leases > 0).then(|| {
                    let text = format!("{error:?} after {} of {max_attempts} runs", self.leases);
                    ("I05", text)
                })
            }
            Status::Queued
            | Status::Starting
            | Status::Processing
            | Status::Canceled
            | Status::Aborted => None,
        }
    }

    /// Whether a message may arrive now.
    pub(super) fn check_message(
        &mut self,
        message: &str,
        status: Status,
        accepted: bool,
    ) -> Vec<Broken> {
        let mut broken = Vec::new();
        if !status.is_terminal() {
            if self.last_message.is_some() {
                broken.push((
                    "I03",
                    format!("a message with {status:?} after the last one"),
                ));
            }
            return broken;
        }
        match self.end {
            None => broken.push(("I03", format!("a message with {status:?} before the end"))),
            Some((_, end)) if end != status => {
                broken.push((
                    "I02",
                    format!("a message with {status:?}, but the job is {end:?}"),
                ));
            }
            Some(_) => {}
        }
        match &self.last_message {
            Some(known) if known != message => {
                broken.push((
                    "C6",
                    format!("its last message has the ids {known} and {message}"),
                ));
            }
            Some(_) => {}
            None => self.last_message = Some(message.to_owned()),
        }
        self.is_delivered |= accepted;
        broken
    }
}
