//! Reasons to refuse a request. A refused request has no effect.

use crate::JobId;
use crate::counters::MetricLabel as _;
use crate::health::Health;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The model does not take jobs yet, or does not take them any more.
    #[error("the model is not ready: its health is `{}`", health.as_str())]
    NotReady {
        /// The health of the model.
        health: Health,
    },
    /// Every slot is busy and the queue is full.
    #[error("every slot is busy and the queue is full; try again later, or raise `--queue`")]
    AtCapacity,
    /// No more jobs may wait.
    #[error("the queue is full: {0}; try again later")]
    QueueFull(WaitingLimit),
    /// The input does not match the model's schema.
    #[error("the input does not match the schema of the model: {}", .0.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join("; "))]
    InvalidInput(Vec<FieldError>),
    /// The id belongs to a job that is still running.
    #[error("job `{0}` is still running; wait for it to end or use another id")]
    IdInUse(JobId),
    /// The id belongs to a job with a different input.
    #[error("job `{0}` exists with a different input; use another id")]
    InputDiffers(JobId),
    /// The client requested a stream from a model that does not stream.
    #[error("the model does not support streaming; send the request without it")]
    NotStreaming,
    /// The URL of the webhook is not valid or not allowed. The message does not repeat it: it may
    /// contain credentials.
    #[error("the webhook URL cannot be used: {reason}")]
    BadWebhook {
        /// Why the URL cannot be used.
        reason: String,
    },
    /// There is no disk space for the files of the job.
    #[error("the server has no disk space left for the files of this job; try again later")]
    NoSpace,
    /// Jobs cannot be stored or read now.
    #[error("the server cannot use its database at the moment; try again later")]
    StoreUnavailable,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closing,
}

/// The limit that a queue has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitingLimit {
    /// The number of jobs of one account that wait for one model.
    #[error("{0} jobs of your account wait for this model")]
    Jobs(usize),
    /// The memory for inputs of jobs that are not recorded.
    #[error("the inputs of waiting jobs use all the memory of `--waiting-memory`")]
    Memory,
}

/// One error of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, with the path below it: `numbers/1`.
    pub field: String,
    /// What is wrong, for the client.
    pub message: String,
    /// The rule that the input violates.
    pub rule: Rule,
}

/// The rule of a model's schema that an input violates, as far as clients see the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The field is required.
    Required,
    /// The value must be one of these, as JSON.
    Choice(Vec<String>),
    /// The value must have another type.
    Type,
    /// The number is too small.
    Minimum,
    /// The number is too large.
    Maximum,
    /// The string is too short.
    MinLength,
    /// The string is too long.
    MaxLength,
    /// The string must match a pattern.
    Pattern,
    /// Another rule; the message describes it.
    Other,
}
