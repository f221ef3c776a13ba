//! The kind of a job, and the form in which executors receive it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::JobId;

/// The function of the model that a job calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A call of the prediction function.
    Prediction,
    /// A call of the training function.
    Training,
}

/// A job in the form that an executor needs: validated, with its input files downloaded.
#[derive(Debug, Clone)]
pub struct Work {
    /// The id of the job.
    pub id: JobId,
    /// The function to call.
    pub kind: JobKind,
    /// The input, a JSON object that matches the model's schema.
    pub input: Bytes,
    /// The downloaded files: JSON pointer into the input to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// Additional values of the client for the model, by key.
    pub context: BTreeMap<String, String>,
    /// The folder for temporary files of this job. It may not exist yet; the caller of the executor
    /// removes it.
    pub scratch: PathBuf,
}
