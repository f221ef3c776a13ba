//! The health of a model, as clients see it.
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Starting
//!     Starting --> Ready: setup succeeds
//!     Starting --> SetupFailed: setup raises, crashes or takes too long
//!     Ready --> Busy: no slot free
//!     Busy --> Ready: a slot frees
//!     Ready --> Starting: the child died and is being replaced
//!     Busy --> Starting: the child died and is being replaced
//!     Starting --> Defunct: children keep dying
//!     Ready --> Defunct: the child died and may not be replaced
//!     Defunct --> Ready: a later child works
//! ```

use jiff::Timestamp;
use serde::Serialize;

use crate::label;

/// The health of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Health {
    /// No child has been started yet.
    Unknown,
    /// A child is loading, for the first time or again.
    Starting,
    /// At least one slot is free.
    Ready,
    /// Every slot is busy.
    Busy,
    /// The first setup failed. It is not repeated.
    SetupFailed,
    /// Children keep dying, or died and are not replaced.
    Defunct,
}

label!(Health: Unknown = "unknown", Starting = "starting", Ready = "ready", Busy = "busy", SetupFailed = "setup_failed",
    Defunct = "defunct");

/// The setup of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupReport {
    /// When the first child was started.
    pub started_at: Timestamp,
    /// When the setup succeeded or failed.
    pub completed_at: Option<Timestamp>,
    /// The state of the setup.
    pub status: SetupStatus,
    /// What the model printed; for a failed setup also the reason.
    pub logs: String,
}

/// The state of a setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SetupStatus {
    /// The setup is running.
    Starting,
    /// The setup succeeded.
    Succeeded,
    /// The setup failed.
    Failed,
}

/// A time span in which a model was loading and could not run jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSpan {
    /// When the load began.
    pub began_at: Timestamp,
    /// When the model was ready for jobs.
    pub ready_at: Timestamp,
}

/// The health of a model at one time, with details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// The health of the model.
    pub health: Health,
    /// The setup of the model; absent before the first child was started.
    pub setup: Option<SetupReport>,
    /// The error that the model's own health check reports; while the model is not available, how
    /// its last child died.
    pub health_error: Option<String>,
    /// The version of Python in the child.
    pub python: Option<String>,
    /// The version of the `cog` package in the child.
    pub sdk: Option<String>,
}

/// The line of a failed setup that says why: the last one that is not indented. Advice that follows it is.
pub fn error_line(logs: &str) -> Option<&str> {
    let mut lines = logs.lines().map(str::trim_end).rev();
    let is_error = |line: &&str| !line.is_empty() && !line.starts_with([' ', '\t']);
    let error = lines.clone().find(is_error);
    let line = error.or_else(|| lines.find(|line| !line.is_empty()));
    line.map(str::trim)
}
