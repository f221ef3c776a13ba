//! The JSON of the hooks. `docs/reference/director.md` describes it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The job that a hook is asked about.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Job {
    pub(super) id: String,
    /// Empty without tokens.
    pub(super) account: String,
    pub(super) kind: &'static str,
    pub(super) model: String,
    pub(super) version: String,
    pub(super) deployment: Option<String>,
    pub(super) created_at: Timestamp,
    /// The number of this attempt.
    pub(super) attempt: u32,
    /// The name of the director.
    pub(super) director: String,
    pub(super) context: BTreeMap<String, String>,
}

/// Asks whether a job may run.
#[derive(Debug, Serialize)]
pub(super) struct PolicyCall<'a> {
    pub(super) job: &'a Job,
}

/// Whether a job may run.
#[derive(Debug, Deserialize)]
pub(super) struct PolicyReply {
    /// A reply without it is no answer: it may be the error of a proxy.
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// A refusal with a status.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// Asks about the output of a job.
#[derive(Debug, Serialize)]
pub(super) struct ModerationCall<'a> {
    pub(super) job: &'a Job,
    /// The input without its secret fields.
    pub(super) input: &'a Map<String, Value>,
    /// The values that the model yielded or returned. Files are empty strings.
    pub(super) output: &'a [Box<RawValue>],
}

/// What the output contains.
#[derive(Debug, Deserialize)]
pub(super) struct ModerationReply {
    /// A reply without it is no answer.
    pub(super) flagged: bool,
    #[serde(default)]
    pub(super) action: ModerationAction,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) categories: Vec<String>,
}

/// What happens to a job whose output is flagged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModerationAction {
    /// It is marked in its metrics.
    #[default]
    Mark,
    /// It fails, and its output is dropped.
    Fail,
}

/// The mark in the metrics of a job.
#[derive(Debug, Serialize)]
pub(super) struct ModerationMark {
    /// Absent if the hook did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flagged: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) categories: Vec<String>,
}
