//! How a model is, as the outside sees it.
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
//!     Starting --> Defunct: it keeps dying
//!     Ready --> Defunct: it died and may not be replaced
//!     Defunct --> Ready: a later one works
//! ```

use jiff::Timestamp;
use serde::Serialize;

use crate::label;

/// How a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Health {
    /// Nothing has been tried yet.
    Unknown,
    /// A child is loading, for the first time or again.
    Starting,
    /// At least one slot is free.
    Ready,
    /// Every slot is taken.
    Busy,
    /// The first setup did not succeed. There is no second.
    SetupFailed,
    /// Children keep dying, or died and are not replaced.
    Defunct,
}

label!(Health: Unknown = "unknown", Starting = "starting", Ready = "ready", Busy = "busy", SetupFailed = "setup_failed",
    Defunct = "defunct");

/// How the setup of a model went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupReport {
    /// When the first child was started.
    pub started_at: Timestamp,
    /// When it was ready or had failed.
    pub completed_at: Option<Timestamp>,
    /// How it stands.
    pub status: SetupStatus,
    /// What the model printed, and for a failed setup why.
    pub logs: String,
}

/// How a setup stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SetupStatus {
    /// Running.
    Starting,
    /// Done.
    Succeeded,
    /// Gave up.
    Failed,
}

/// All there is to say about a model at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// How it is.
    pub health: Health,
    /// How its setup went; absent before anything was started.
    pub setup: Option<SetupReport>,
    /// What the model's own health check complains about; while it does not serve, how its last child died.
    pub health_error: Option<String>,
    /// The child's Python.
    pub python: Option<String>,
    /// The version of the `cog` package in the child.
    pub sdk: Option<String>,
}
