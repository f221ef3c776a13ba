//! Conversions between domain types and column values. Enums are stored as text, so that they can
//! be read with `sqlite3`.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::lease::Nonce;
use tidegate_core::record::{Api, DeploymentRef};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::{Account, JobKind, Status};

use super::error::DbError;

/// The deployment of a job.
pub(super) fn deployment_ref(text: Option<String>) -> Option<DeploymentRef> {
    text.map(DeploymentRef::from)
}

/// A nonce as 32 hexadecimal digits.
pub(super) fn nonce_text(nonce: Nonce) -> String {
    format!("{:032x}", nonce.0)
}

pub(super) fn status_text(status: Status) -> &'static str {
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

pub(super) fn status(text: &str) -> Result<Status, DbError> {
    match text {
        "queued" => Ok(Status::Queued),
        "starting" => Ok(Status::Starting),
        "processing" => Ok(Status::Processing),
        "succeeded" => Ok(Status::Succeeded),
        "failed" => Ok(Status::Failed),
        "canceled" => Ok(Status::Canceled),
        "aborted" => Ok(Status::Aborted),
        other => Err(DbError::Corrupt(format!("`{other}` is not a status"))),
    }
}

pub(super) fn kind_text(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Prediction => "prediction",
        JobKind::Training => "training",
    }
}

pub(super) fn kind(text: &str) -> Result<JobKind, DbError> {
    match text {
        "prediction" => Ok(JobKind::Prediction),
        "training" => Ok(JobKind::Training),
        other => Err(DbError::Corrupt(format!("`{other}` is not a kind of job"))),
    }
}

pub(super) fn api_text(api: Api) -> &'static str {
    match api {
        Api::Cog => "cog",
        Api::Replicate => "replicate",
        Api::Runpod => "runpod",
    }
}

pub(super) fn api(text: &str) -> Result<Api, DbError> {
    match text {
        "cog" => Ok(Api::Cog),
        "replicate" => Ok(Api::Replicate),
        "runpod" => Ok(Api::Runpod),
        other => Err(DbError::Corrupt(format!("`{other}` is not an API"))),
    }
}

/// The anonymous account is stored as '', which no other account can be called.
pub(super) fn account_text(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

pub(super) fn account(text: &str) -> Result<Account, DbError> {
    match text {
        "" => Ok(Account::ANONYMOUS),
        name => Account::parse(name).map_err(corrupt),
    }
}

pub(super) fn timestamp(microseconds: i64) -> Result<Timestamp, DbError> {
    Timestamp::from_microsecond(microseconds).map_err(corrupt)
}

pub(super) fn micros(timestamp: Timestamp) -> i64 {
    timestamp.as_microsecond()
}

/// Serializes values that always are valid JSON: their map keys are strings.
pub(super) fn json_text(value: &impl serde::Serialize) -> Result<String, DbError> {
    serde_json::to_string(value).map_err(|error| DbError::Invalid(error.to_string()))
}

pub(super) fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, DbError> {
    serde_json::from_str(text).map_err(corrupt)
}

/// The facts about a remote worker in a row of layout 4 or earlier, where they are among the metrics.
pub(super) fn remote_facts_among(metrics: &mut Map<String, Value>) -> Option<RemoteFacts> {
    if !metrics.contains_key("worker") {
        return None;
    }
    let mut flag = |name| metrics.remove(name).is_some();
    let (waiting, streamed) = (flag("waits"), flag("streamed"));
    let (no_output, timed_out) = (flag("no_output"), flag("timed_out"));
    Some(RemoteFacts {
        worker: metrics
            .remove("worker")
            .and_then(|worker| Some(worker.as_str()?.to_owned())),
        retries: metrics.remove("retries").and_then(|count| count.as_u64()),
        progress: metrics.remove("progress"),
        final_output: metrics.remove("final_output"),
        waiting,
        streamed,
        no_output,
        timed_out,
    })
}

pub(super) fn corrupt(error: impl std::fmt::Display) -> DbError {
    DbError::Corrupt(error.to_string())
}
