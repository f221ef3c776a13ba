//! What operators see of the control plane.

use jiff::Timestamp;
use serde::Serialize;

/// The state of the control plane, for `GET /admin/router` and metrics.
#[derive(Debug, Clone, Serialize)]
pub struct ControlStatus {
    /// Counts the configurations that were put into force, from 1.
    pub version: u64,
    /// When the configuration in force was loaded.
    pub loaded_at: Timestamp,
    /// The number of reloads that failed since the start.
    pub failed_reloads: u64,
    /// Why the last reload failed; `None` if it succeeded.
    pub last_error: Option<String>,
    /// The number of backends that have registered themselves.
    pub registrations: usize,
    /// The sources of endpoints, in the order of their names.
    pub sources: Vec<SourceStatus>,
}

/// The state of one source of endpoints.
#[derive(Debug, Clone, Serialize)]
pub struct SourceStatus {
    /// The source as in the file, such as `dns llama.svc:8000`.
    pub source: String,
    /// Whether its list is current.
    pub condition: SourceCondition,
    /// The endpoints of its last good list.
    pub endpoints: usize,
    /// The last error, if it fails now.
    pub error: Option<String>,
}

/// Whether the list of a source is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceCondition {
    /// It has not answered yet.
    Pending,
    /// The last answer is in use.
    Current,
    /// It fails; the last good list is in use.
    Failing,
}
