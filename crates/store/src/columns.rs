//! Conversions between domain types and column values, for all databases. Enums are stored as text, so
//! that they can be read with `sqlite3` and `psql`.

use jiff::Timestamp;
use tidegate_core::lease::Nonce;
use tidegate_core::record::{Api, DeploymentRef};
use tidegate_core::{Account, JobKind, Status};

/// Why a value is not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColumnError {
    /// A column has a value that this program never writes.
    Corrupt(String),
    /// The value of the caller cannot be stored.
    Invalid(String),
}

/// The deployment of a job.
pub(crate) fn deployment_ref(text: Option<String>) -> Option<DeploymentRef> {
    text.map(DeploymentRef::from)
}

/// A nonce as 32 hexadecimal digits.
pub(crate) fn nonce_text(nonce: Nonce) -> String {
    format!("{:032x}", nonce.0)
}

/// The nonce of a text of [`nonce_text`].
pub(crate) fn nonce(text: &str) -> Result<Nonce, ColumnError> {
    u128::from_str_radix(text, 16).map(Nonce).map_err(corrupt)
}

pub(crate) fn status_text(status: Status) -> &'static str {
    match status {
        Status::Queued => "queued",
        Status::Starting => "starting",
        Status::Processing => "processing",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Canceled => "canceled",
        Status::Aborted => "aborted",
    }
}

pub(crate) fn status(text: &str) -> Result<Status, ColumnError> {
    match text {
        "queued" => Ok(Status::Queued),
        "starting" => Ok(Status::Starting),
        "processing" => Ok(Status::Processing),
        "succeeded" => Ok(Status::Succeeded),
        "failed" => Ok(Status::Failed),
        "canceled" => Ok(Status::Canceled),
        "aborted" => Ok(Status::Aborted),
        other => Err(ColumnError::Corrupt(format!("`{other}` is not a status"))),
    }
}

pub(crate) fn kind_text(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Prediction => "prediction",
        JobKind::Training => "training",
    }
}

pub(crate) fn kind(text: &str) -> Result<JobKind, ColumnError> {
    match text {
        "prediction" => Ok(JobKind::Prediction),
        "training" => Ok(JobKind::Training),
        other => Err(ColumnError::Corrupt(format!(
            "`{other}` is not a kind of job"
        ))),
    }
}

pub(crate) fn api_text(api: Api) -> &'static str {
    match api {
        Api::Cog => "cog",
        Api::Replicate => "replicate",
        Api::Runpod => "runpod",
        Api::OpenAi => "openai",
        Api::WorkersAi => "workers_ai",
    }
}

pub(crate) fn api(text: &str) -> Result<Api, ColumnError> {
    match text {
        "cog" => Ok(Api::Cog),
        "replicate" => Ok(Api::Replicate),
        "runpod" => Ok(Api::Runpod),
        "openai" => Ok(Api::OpenAi),
        "workers_ai" => Ok(Api::WorkersAi),
        other => Err(ColumnError::Corrupt(format!("`{other}` is not an API"))),
    }
}

/// The anonymous account is stored as '', which no other account can be called.
pub(crate) fn account_text(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

pub(crate) fn account(text: &str) -> Result<Account, ColumnError> {
    match text {
        "" => Ok(Account::ANONYMOUS),
        name => Account::parse(name).map_err(corrupt),
    }
}

pub(crate) fn timestamp(microseconds: i64) -> Result<Timestamp, ColumnError> {
    Timestamp::from_microsecond(microseconds).map_err(corrupt)
}

pub(crate) fn micros(timestamp: Timestamp) -> i64 {
    timestamp.as_microsecond()
}

/// Serializes values that always are valid JSON: their map keys are strings.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String, ColumnError> {
    serde_json::to_string(value).map_err(|error| ColumnError::Invalid(error.to_string()))
}

pub(crate) fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, ColumnError> {
    serde_json::from_str(text).map_err(corrupt)
}

pub(crate) fn corrupt(error: impl std::fmt::Display) -> ColumnError {
    ColumnError::Corrupt(error.to_string())
}
