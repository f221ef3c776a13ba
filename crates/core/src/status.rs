//! The status of a job, and the only function that changes it.
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Queued
//!     Queued --> Starting: Assign
//!     Starting --> Processing: Begin
//!     Processing --> Succeeded: Succeed
//!     Starting --> Failed: Fail
//!     Processing --> Failed: Fail
//!     Queued --> Canceled: Cancel
//!     Starting --> Canceled: Cancel
//!     Processing --> Canceled: Cancel
//!     Queued --> Aborted: Abort
//!     Starting --> Aborted: Abort
//!     Processing --> Aborted: Abort
//! ```

use serde::{Deserialize, Serialize};

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, waiting for a slot.
    Queued,
    /// Has a slot; the model has not begun.
    Starting,
    /// The model is running.
    Processing,
    /// Ended with an output.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Ended because a cancel was requested.
    Canceled,
    /// Ended by the server because its deadline passed before it started.
    Aborted,
}

/// A step that changes the status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The job gets a slot.
    Assign,
    /// The model begins.
    Begin,
    /// The model returned.
    Succeed,
    /// The model or its environment failed.
    Fail,
    /// A cancel was requested.
    Cancel,
    /// The server ended the job.
    Abort,
}

/// A step that the current status of the job does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("step `{step:?}` is not allowed for a job with status `{from:?}`")]
pub struct IllegalStep {
    /// The current status.
    pub from: Status,
    /// The step that was attempted.
    pub step: Step,
}

impl Status {
    /// The status after `step`.
    pub fn after(self, step: Step) -> Result<Status, IllegalStep> {
        use {Status::*, Step::*};
        match (self, step) {
            (Queued, Assign) => Ok(Starting),
            (Starting, Begin) => Ok(Processing),
            (Processing, Succeed) => Ok(Succeeded),
            (Starting | Processing, Fail) => Ok(Failed),
            (Queued | Starting | Processing, Cancel) => Ok(Canceled),
            (Queued | Starting | Processing, Abort) => Ok(Aborted),
            (from, step) => Err(IllegalStep { from, step }),
        }
    }

    /// Whether the job has ended: no step is allowed any more.
    pub fn is_terminal(self) -> bool {
        match self {
            Status::Queued | Status::Starting | Status::Processing => false,
            Status::Succeeded | Status::Failed | Status::Canceled | Status::Aborted => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_status_and_step() {
        use {Status::*, Step::*};
        let mut table = String::new();
        for from in [
            Queued, Starting, Processing, Succeeded, Failed, Canceled, Aborted,
        ] {
            for step in [Assign, Begin, Succeed, Fail, Cancel, Abort] {
                let to = from
                    .after(step)
                    .map_or_else(|_| "-".to_owned(), |to| format!("{to:?}"));
                table += &format!("{from:?} + {step:?} = {to}\n");
            }
        }
        insta::assert_snapshot!(table);
    }
}
