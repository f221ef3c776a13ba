//! What the puller needs from the rest of the house besides an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::{JobId, Metric, OutputValue};

use crate::platform_urls::OutputDelivery;
use crate::wire::Job;

/// Carries jobs to the model and what it gives back from it: inputs are checked and their files fetched, files in
/// outputs become something that can be sent. It also knows what kind of code the model is.
#[async_trait]
pub trait JobCodec: Send + Sync {
    /// What the model is given. An error is the job's result.
    async fn decode(&self, job: &Job) -> Result<DecodedJob, String>;

    /// The JSON of a value, without files in it.
    async fn encode_output(
        &self,
        id: &JobId,
        value: OutputValue,
        scratch: &Path,
    ) -> Result<Bytes, String>;

    /// The progress that a note of the model's is, if it is one.
    fn progress(&self, metric: &Metric) -> Option<Bytes>;

    /// What a job gives besides its error, if a note of the model's is that.
    fn failure_output(&self, metric: &Metric) -> Option<Bytes>;
}

/// A job as the model gets it.
#[derive(Debug, Default)]
pub struct DecodedJob {
    /// The input.
    pub input: Bytes,
    /// Files that were fetched for it: JSON pointer to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// Notes for the model.
    pub context: BTreeMap<String, String>,
    /// For the files of this job; the puller removes it.
    pub scratch: PathBuf,
}

/// What a model's code means by what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerSemantics {
    /// What the end says of a job that gave its output in parts.
    pub stream_result: StreamResult,
    /// What an empty object is.
    pub empty_object: EmptyObject,
    /// How an output goes out of which there is nothing.
    pub without_stream: OutputDelivery,
    /// Whether the worker is replaced.
    pub refresh: Refresh,
}

/// What the end says of a job that gave its output in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamResult {
    /// All of them, as a list.
    Aggregated,
    /// An empty list.
    EmptyList,
}

/// What an empty object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyObject {
    /// An output like others.
    Output,
    /// No output at all, which is what Runpod's own workers make of it.
    NoOutput,
}

/// Whether the worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// When a job says so.
    OnRequest,
    /// After every job, which then is the last one of this process.
    AfterEachJob,
}
