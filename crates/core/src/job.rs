//! What a job is, apart from its state.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use serde::Serialize;

use crate::JobId;

/// Which of a model's functions a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// One call of the model.
    Prediction,
    /// One call of its training function.
    Training,
}

/// A job as an executor needs it: checked, with its files at hand.
#[derive(Debug, Clone)]
pub struct Work {
    /// The job.
    pub id: JobId,
    /// Which function to call.
    pub kind: JobKind,
    /// The input, a JSON object that has passed the model's schema.
    pub input: Bytes,
    /// Files that were fetched for it: JSON pointer into the input to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// The caller's own notes for the model.
    pub context: BTreeMap<String, String>,
    /// Where files of this job may be kept. It may not exist yet; its owner removes it.
    pub scratch: PathBuf,
}
