//! The life of a job, and the one function that moves it.
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

use serde::Serialize;

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, waiting for a place to run.
    Queued,
    /// Has its place; the model has not begun.
    Starting,
    /// The model is at it.
    Processing,
    /// Ended with an output.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Ended because somebody asked.
    Canceled,
    /// Ended by the platform before it could be served.
    Aborted,
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It gets a place to run.
    Assign,
    /// The model begins.
    Begin,
    /// The model returned.
    Succeed,
    /// The model, or what surrounds it, failed.
    Fail,
    /// Somebody asked for it to end.
    Cancel,
    /// The platform ended it.
    Abort,
}

/// A step that the job cannot take from where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} job cannot {step:?}")]
pub struct IllegalStep {
    /// Where the job is.
    pub from: Status,
    /// What was tried.
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

    /// Whether nothing more can happen.
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
