//! Why a request was not taken. Nothing has happened, nothing will.

use crate::JobId;
use crate::health::Health;

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The model is not there, not yet or not any more.
    #[error("the model is not ready: {health:?}")]
    NotReady {
        /// What it is instead.
        health: Health,
    },
    /// Every slot is taken and the line is full.
    #[error("every slot is busy and the line is full; try again later")]
    AtCapacity,
    /// The input does not fit the model's schema.
    #[error("the input does not fit the model: {}", .0.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join("; "))]
    InvalidInput(Vec<FieldError>),
    /// The id belongs to a job that is still running.
    #[error("job `{0}` is already running")]
    IdInUse(JobId),
    /// The id belongs to a job with another input.
    #[error("job `{0}` was made with another input")]
    InputDiffers(JobId),
    /// A stream was wanted from a model that does not stream.
    #[error("the model does not stream")]
    NotStreaming,
    /// The webhook's address cannot be used. It is not repeated here: it may hold credentials.
    #[error("the webhook cannot be used: {reason}")]
    BadWebhook {
        /// Why.
        reason: String,
    },
    /// There is no room for the job's files.
    #[error("the server has no space left for the files of this job; try again later")]
    NoSpace,
    /// The job cannot be written down now.
    #[error("the server cannot keep jobs at the moment; try again later")]
    StoreUnavailable,
    /// The server is on its way out.
    #[error("the server is shutting down")]
    Closing,
}

/// One thing wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Which field, with the path below it: `numbers/1`.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// Which rule it breaks.
    pub rule: Rule,
}

/// Which rule of a model's schema an input breaks, as far as callers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The field must be there.
    Required,
    /// It must be one of these, as JSON.
    Choice(Vec<String>),
    /// It must be of another type.
    Type,
    /// It is too small a number.
    Minimum,
    /// It is too large a number.
    Maximum,
    /// It is too short a text.
    MinLength,
    /// It is too long a text.
    MaxLength,
    /// It must match a pattern.
    Pattern,
    /// Another one; the message says which.
    Other,
}
