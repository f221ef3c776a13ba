//! [`JobCodec`]: how the worker converts jobs for the model and outputs for the platform.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::{JobId, Metric, OutputValue};

use crate::platform_urls::OutputDelivery;
use crate::wire::Job;

/// Converts jobs and outputs: validates inputs, downloads their files, and encodes files in outputs.
#[async_trait]
pub trait JobCodec: Send + Sync {
    /// The job for the model. An error is the job's result.
    async fn decode(&self, job: &Job) -> Result<DecodedJob, String>;

    /// Encodes an output as JSON, including its files.
    async fn encode_output(
        &self,
        id: &JobId,
        value: OutputValue,
        scratch: &Path,
    ) -> Result<Bytes, String>;

    /// The progress, if the metric is a progress report.
    fn progress(&self, metric: &Metric) -> Option<Bytes>;

    /// The output beside an error, if the metric is that.
    fn failure_output(&self, metric: &Metric) -> Option<Bytes>;
}

/// A job for the model.
#[derive(Debug, Default)]
pub struct DecodedJob {
    /// The input.
    pub input: Bytes,
    /// Downloaded files: JSON pointer to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// Context for the model.
    pub context: BTreeMap<String, String>,
    /// The folder for the job's files; the worker removes it.
    pub scratch: PathBuf,
}

/// How the worker interprets what the model's code returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerSemantics {
    /// The output in the result of a job that streamed its output.
    pub stream_result: StreamResult,
    /// How an empty object is interpreted.
    pub empty_object: EmptyObject,
    /// How the output of a job without parts is delivered.
    pub without_stream: OutputDelivery,
    /// When the worker is replaced.
    pub refresh: Refresh,
}

/// The output in the result of a job that streamed its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamResult {
    /// All parts, as a list.
    Aggregated,
    /// An empty list.
    EmptyList,
}

/// How an empty object is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyObject {
    /// It is an output.
    Output,
    /// It is no output, as in Runpod's SDK.
    NoOutput,
}

/// When the worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// When a job asks for it.
    OnRequest,
    /// After each job.
    AfterEachJob,
}
