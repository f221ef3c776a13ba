//! What the puller needs from the rest of the house besides an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::{JobId, Metric, OutputValue};

use crate::wire::Job;

/// Carries jobs to the model and what it gives back from it: inputs are checked and their files fetched, files in
/// outputs become something that can be sent. It also knows what the model's code means by what it returns.
#[async_trait]
pub trait Porter: Send + Sync {
    /// What the model is given. An error is the job's result.
    async fn carry_in(&self, job: &Job) -> Result<Carried, String>;

    /// The JSON of a value, without files in it.
    async fn carry_out(&self, id: &JobId, value: OutputValue, scratch: &Path) -> Result<Bytes, String>;

    /// Whether the list of all parts is sent again with the end of a job that gave its output in parts.
    fn repeats_parts(&self) -> bool;

    /// Whether a part can say that the job has failed.
    fn parts_can_fail(&self) -> bool;

    /// What the result of a job says: what the model returned, read as its kind of code means it.
    fn verdict(&self, output: &Bytes) -> Verdict;

    /// The progress that a note of the model's is, if it is one.
    fn progress(&self, metric: &Metric) -> Option<Bytes>;

    /// Asked before jobs are taken and every second: how many at once, if the model's code says so itself.
    async fn limit(&self, now: usize) -> Option<usize>;
}

/// A job as the model gets it.
#[derive(Debug)]
pub struct Carried {
    /// The input.
    pub input: Bytes,
    /// Files that were fetched for it: JSON pointer to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// For the files of this job; the puller removes it.
    pub scratch: PathBuf,
}

/// What a returned value means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is sent as output.
    pub output: Option<Bytes>,
    /// Why the job has failed, if it has.
    pub error: Option<String>,
    /// Whether the worker is to be replaced.
    pub refresh: bool,
}
