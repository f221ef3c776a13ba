//! The calls that a director makes to the API: JSON bodies of `POST` requests, with the directors' token as
//! bearer token. A field that is added later has a default, so that old and new processes work together.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lease::{Fence, Nonce};
use crate::leases::{HeldLease, Holder, JobRef};
use crate::live::LiveBatch;
use crate::outbox::OutboxMessage;
use crate::record::JobSpec;
use crate::store::{FinishOutcome, JobFinish};
use crate::trained_version::TrainedVersion;
use crate::wire;

/// The paths of the calls.
pub mod paths {
    /// [`super::HeartbeatCall`].
    pub const HEARTBEAT: &str = "/director/v1/heartbeat";
    /// [`super::RegisterCall`].
    pub const MODELS: &str = "/director/v1/models";
    /// [`super::LeaseCall`].
    pub const LEASE: &str = "/director/v1/lease";
    /// [`super::ReleaseCall`].
    pub const RELEASE: &str = "/director/v1/release";
    /// [`super::FinishCall`].
    pub const FINISH: &str = "/director/v1/finish";
    /// [`super::CallBatch`].
    pub const CALLS: &str = "/director/v1/calls";
    /// [`super::PublishCall`].
    pub const EVENTS: &str = "/director/v1/events";
    /// [`super::UpdateCall`].
    pub const UPDATES: &str = "/director/v1/updates";
    /// `PUT` of an output file below this path: `/{token}/{file name}`. The reply has its address in the
    /// output in `Location`. `GET` of a stored file of the account of the job: `/{token}/{id}`; the reply has
    /// its name in [`super::FILE_NAME_HEADER`].
    pub const FILES: &str = "/director/v1/files";
    /// [`super::VersionCall`].
    pub const VERSIONS: &str = "/director/v1/versions";
    /// `GET` of the weights of a trained version below this path: `/{key}`, with the key of
    /// [`super::TrainedVersion`].
    pub const WEIGHTS: &str = "/director/v1/weights";
}

/// The body of the response to a call that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallErrorBody {
    /// What is wrong.
    pub detail: String,
    /// What the director does about it; absent if the status code says all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CallErrorCode>,
}

/// A reason that a director treats in a special way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallErrorCode {
    /// The API process can be reached, and its store does not answer. No lease expires meanwhile, so the
    /// director continues its jobs.
    StoreUnavailable,
}

/// The header with the name of a stored file, written as the last segment of a URL.
pub const FILE_NAME_HEADER: &str = "x-file-name";

/// The token of one lease: it permits the calls about this job and attempt, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseToken(pub String);

/// A heartbeat, with what the director serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatCall {
    /// The director.
    pub holder: Holder,
    /// The leases that it holds.
    pub leases: Vec<HeldLease>,
    /// The models that it serves.
    pub models: Vec<ModelOffer>,
    /// The kind of jobs that it takes.
    #[serde(default)]
    pub job_kind: DirectorJobKind,
    /// Whether it takes no more jobs and ends when its jobs have ended.
    #[serde(default)]
    pub is_draining: bool,
}

/// The kind of jobs that a director takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectorJobKind {
    /// Predictions.
    #[default]
    Prediction,
    /// Trainings.
    Training,
    /// Procedures, which a model runs as predictions.
    Procedure,
}

/// A model that a director serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOffer {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// The SHA-256 of its schema, in hexadecimal digits; absent while it is not known.
    pub schema_hash: Option<String>,
    /// How many jobs run at the same time.
    pub slots: u32,
}

/// The reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// A director with the same name has started later: this one must stop.
    pub is_superseded: bool,
    /// The jobs that must be canceled.
    pub cancel: Vec<JobRef>,
    /// The leases that are lost: the results do not count.
    pub lost: Vec<JobRef>,
    /// The leases of the director that the heartbeat does not list. It releases those that it does not know.
    #[serde(default)]
    pub unlisted: Vec<UnlistedLease>,
    /// The versions whose schema the API does not know yet: [`RegisterCall`] is expected.
    pub unknown_versions: Vec<String>,
    /// The queues that the director takes jobs from, for each of its models.
    pub queues: Vec<AssignedQueue>,
    /// The queues of trained versions. The leases of their jobs have the trained version, which must not be run
    /// without its weights; so a director that does not know this field does not read them.
    #[serde(default)]
    pub trained_queues: Vec<AssignedQueue>,
    /// How long a lease lives without a heartbeat.
    #[serde(with = "wire::milliseconds")]
    pub lease: Duration,
    /// The pause between heartbeats.
    #[serde(with = "wire::milliseconds")]
    pub interval: Duration,
}

/// A lease that a heartbeat does not list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlistedLease {
    /// The lease.
    pub lease: HeldLease,
    /// The token of the lease.
    pub token: LeaseToken,
}

/// A queue that a director takes jobs from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedQueue {
    /// The name of the queue.
    pub name: String,
    /// The version that runs its jobs, or whose code runs them.
    pub version: String,
}

/// Registers models with their schemas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterCall {
    /// The director.
    pub holder: Holder,
    /// The models.
    pub models: Vec<ModelRegistration>,
}

/// A model with its schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRegistration {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// The OpenAPI document.
    #[serde(with = "wire::json")]
    pub schema: Bytes,
    /// The one-sentence description that the model declares.
    pub description: Option<String>,
    /// When the model's files were last modified.
    pub created_at: Timestamp,
    /// Whether it is a Runpod handler.
    #[serde(default)]
    pub is_handler: bool,
    /// Whether its predictions are calls of a procedure.
    #[serde(default)]
    pub is_procedure: bool,
}

/// The reply to a registration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterReply {
    /// The models that were refused.
    pub refused: Vec<RefusedModel>,
}

/// A model that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedModel {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// What is wrong and how to fix it.
    pub reason: String,
}

/// Asks for the lease of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseCall {
    /// The director.
    pub holder: Holder,
    /// The job.
    pub job: JobRef,
    /// One per message that was taken: a repeated call gets the same reply.
    pub nonce: Nonce,
}

/// The reply to a request for a lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseReply {
    /// The director may run the job.
    Granted(Box<LeasedJob>),
    /// Another director holds the lease. The message must not be acknowledged.
    HeldByAnother,
    /// The job has ended, or is unknown: the message must be acknowledged.
    Over,
    /// A director with the same name has started later: this one must stop.
    Superseded,
}

/// A job that a director may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeasedJob {
    /// The job.
    pub spec: JobSpec,
    /// The fencing token.
    pub fence: Fence,
    /// When the attempt began.
    pub began_at: Timestamp,
    /// The time until the job expires, in milliseconds.
    pub remaining_ms: Option<u64>,
    /// Permits the calls about this job and attempt.
    pub token: LeaseToken,
    /// The trained version that the job is for, if it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained: Option<TrainedVersion>,
}

/// Gives a lease back, because the model did not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseCall {
    /// The lease.
    pub lease: HeldLease,
    /// The token of the lease.
    pub token: LeaseToken,
}

/// Sends an interim webhook message about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateCall {
    /// The lease of the job.
    pub lease: HeldLease,
    /// The token of the lease.
    pub token: LeaseToken,
    /// The message.
    pub message: OutboxMessage,
}

/// The reply to an interim webhook message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateReply {
    /// Whether the lease is the last one of the job, and the job is open.
    pub is_current: bool,
}

/// Creates a version from a training that has succeeded, before it ends. The same call again creates the same
/// version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionCall {
    /// The lease of the training.
    pub lease: HeldLease,
    /// The token of the lease.
    pub token: LeaseToken,
    /// The value of `weights` in its output.
    pub weights: String,
}

/// The reply to the creation of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionReply {
    /// The version is stored: its full name.
    Created(String),
    /// The weights are nothing that a model can load, or the lease is lost.
    NotCreated,
    /// No version can be created: a message for the client.
    Refused(String),
}

/// Ends a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishCall {
    /// The end.
    pub finish: JobFinish,
    /// The token of the lease.
    pub token: LeaseToken,
}

/// The reply to the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishReply {
    /// The result.
    pub outcome: FinishOutcome,
}

/// Several small calls of one director in one request. A busy director makes so many that the requests cost more
/// than the calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallBatch {
    /// The calls, in any order.
    pub calls: Vec<BatchedCall>,
}

/// A call that can be part of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchedCall {
    /// Asks for the lease of a job.
    Lease(LeaseCall),
    /// Ends a job.
    Finish(Box<FinishCall>),
}

/// The reply to a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallBatchReply {
    /// The replies in the order of the calls. A call without one is repeated alone: it failed, it takes long, or
    /// its reply is large.
    pub replies: Vec<Option<BatchedReply>>,
}

/// The reply to one call of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchedReply {
    /// The reply to a request for a lease.
    Lease(LeaseReply),
    /// The reply to the end of a job.
    Finish(FinishReply),
}

/// Publishes live events of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishCall {
    /// The job.
    pub job: JobRef,
    /// The token of the lease.
    pub token: LeaseToken,
    /// The events.
    pub batch: LiveBatch,
}

/// The reply to published events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishReply {
    /// The offset of the next event that is expected: events from there on must be sent again.
    pub next_offset: u64,
    /// Whether a cancel of the job is recorded.
    #[serde(default)]
    pub cancel_requested: bool,
}

/// A JSON document without the whitespace between its parts. The same schema may be formatted in different ways:
/// what a model's process sends is not formatted like what a command prints.
pub fn compact_schema(json: &[u8]) -> Vec<u8> {
    let (mut compact, mut is_in_string, mut is_escaped) =
        (Vec::with_capacity(json.len()), false, false);
    for byte in json {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' if !is_in_string => continue,
            b'"' if !is_escaped => is_in_string = !is_in_string,
            _ => {}
        }
        is_escaped = is_in_string && *byte == b'\\' && !is_escaped;
        compact.push(*byte);
    }
    compact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_in_texts_stays() {
        let formatted = br#"{ "a b" : [ 1,
            "x \" y\\" , "z" ] }"#;
        let expected = br#"{"a b":[1,"x \" y\\","z"]}"#;
        assert_eq!(compact_schema(formatted), expected);
        assert_eq!(compact_schema(expected), expected);
    }
}
