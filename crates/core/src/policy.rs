//! How a job is treated where the APIs differ. The API that accepts a job chooses its policies;
//! they are recorded with the job, so that a job resumed after a restart is treated the same way.

use serde::{Deserialize, Serialize};

use crate::record::Api;

/// The policies of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPolicies {
    /// Where the job waits when no slot is free.
    pub queueing: QueueingPolicy,
    /// Where the files of its output go.
    pub output_files: OutputFilePolicy,
    /// Which webhooks are sent between start and end.
    pub updates: UpdatePolicy,
    /// How the returned value looks before the job has ended.
    pub interim_output: InterimOutput,
}

/// Where a job waits when no slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueingPolicy {
    /// At the model, in its bounded queue. The job is refused while the model is not ready.
    AtModel,
    /// In the durable queue of the model, however long it takes, also while the model loads.
    Queue,
}

/// Where the files of an output go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFilePolicy {
    /// Into the output, as data URIs.
    Inline,
    /// Into the file store of the server, if there is one; the output holds their URLs.
    FileStore,
}

/// Which webhooks a receiver gets between the start and the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdatePolicy {
    /// One for every output value; logs are throttled.
    EveryValue,
    /// One at a time with a pause after it; the next one contains everything since.
    Newest,
}

/// How the single value that a model returned looks while the job has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterimOutput {
    /// As a list with one element.
    List,
    /// As the value itself.
    Value,
}

impl Api {
    /// The policies that clients of this API expect. They also apply to jobs that were recorded
    /// before policies were.
    pub fn policies(self) -> JobPolicies {
        match self {
            Self::Cog | Self::OpenAi | Self::WorkersAi => JobPolicies {
                queueing: QueueingPolicy::AtModel,
                output_files: OutputFilePolicy::Inline,
                updates: UpdatePolicy::EveryValue,
                interim_output: InterimOutput::List,
            },
            Self::Replicate => JobPolicies {
                queueing: QueueingPolicy::Queue,
                output_files: OutputFilePolicy::FileStore,
                updates: UpdatePolicy::Newest,
                interim_output: InterimOutput::Value,
            },
            Self::Runpod => JobPolicies {
                queueing: QueueingPolicy::Queue,
                output_files: OutputFilePolicy::Inline,
                updates: UpdatePolicy::Newest,
                interim_output: InterimOutput::List,
            },
        }
    }
}
