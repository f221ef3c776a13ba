//! The stored record of a job, which outlives the process that accepted the job.
//!
//! The record is authoritative: queue entries, state in memory and responses are derived from it.
//! It is written when the job is accepted, when the model begins, and when the job ends.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policy::JobPolicies;
use crate::remote::RemoteFacts;
use crate::{Account, JobId, JobKind, Status, wire};

/// A job as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// What the client requested; never changes.
    pub spec: JobSpec,
    /// How many times the job was given to a model. Reports of an earlier attempt are obsolete.
    pub attempt: u32,
    /// How many attempts were given back before the model began.
    pub released: u32,
    /// The status of the job.
    pub status: Status,
    /// When the last attempt began.
    pub started_at: Option<Timestamp>,
    /// How the job ended; absent until then.
    pub completion: Option<Completion>,
    /// Whether input, output and logs were removed because their retention period has passed.
    pub data_removed: bool,
    /// Whether a client requested that the job is canceled.
    pub cancel_requested: bool,
}

impl JobRecord {
    /// How many times the job has run, to its end or not.
    pub fn runs(&self) -> u32 {
        self.attempt.saturating_sub(self.released)
    }
}

/// What the client requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The id of the job, unique in the account.
    pub id: JobId,
    /// The account that owns the job.
    #[serde(with = "wire::account")]
    pub account: Account,
    /// The function of the model that the job calls.
    pub kind: JobKind,
    /// The model and version that the job is for.
    pub target: Target,
    /// The validated input, a JSON object. Files in it are still URLs.
    #[serde(with = "wire::json")]
    pub input: Bytes,
    /// Where the input contains URLs of files, as JSON pointers.
    pub files: Vec<String>,
    /// The fields of the input that are secret: no response contains their values.
    pub secrets: Vec<String>,
    /// Additional values for the model, by key.
    pub context: BTreeMap<String, String>,
    /// For a training: the model that gets its result as a new version, `owner/name`.
    pub destination: Option<String>,
    /// The webhook that receives messages about the job.
    pub hook: Option<WebhookSpec>,
    /// The API that the job came by: its format is used for webhooks and responses.
    pub api: Api,
    /// How the job is handled where the APIs differ.
    pub policies: JobPolicies,
    /// When the job expires.
    pub deadline: Option<Timestamp>,
    /// When the job was accepted.
    pub created_at: Timestamp,
}

/// The model and version that a job is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// The deployment that the job was created through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentRef>,
}

/// The prefix of the model names of endpoints: `runpod/NAME`.
const ENDPOINT_PREFIX: &str = "runpod/";
/// The prefix of the models of a router.
const ROUTED_PREFIX: &str = "router/";
/// Endpoints have no versions. No model has this one, because it is the hash of its files.
const ENDPOINT_VERSION: &str = "0000000000000000000000000000000000000000000000000000000000000000";

impl Target {
    /// The target of the jobs of an endpoint, whose jobs workers fetch.
    pub fn of_endpoint(name: &str) -> Self {
        Self {
            model: format!("{ENDPOINT_PREFIX}{name}"),
            version: ENDPOINT_VERSION.to_owned(),
            deployment: None,
        }
    }

    /// The target of the queued requests of a router for one of its models.
    pub fn of_routed_model(name: &str) -> Self {
        Self {
            model: format!("{ROUTED_PREFIX}{name}"),
            version: ENDPOINT_VERSION.to_owned(),
            deployment: None,
        }
    }

    /// Whether it is the target of the jobs of an endpoint.
    pub fn is_endpoint(&self) -> bool {
        self.version == ENDPOINT_VERSION && self.model.starts_with(ENDPOINT_PREFIX)
    }
}

/// A deployment and one of its releases. Stored as `owner/name#2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DeploymentRef {
    /// `owner/name`; neither part can contain a `#`.
    pub deployment: String,
    /// The number of the release; unknown for jobs that were stored without it.
    pub release: Option<u64>,
}

impl fmt::Display for DeploymentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.release {
            Some(release) => write!(f, "{}#{release}", self.deployment),
            None => f.write_str(&self.deployment),
        }
    }
}

impl From<DeploymentRef> for String {
    fn from(deployment: DeploymentRef) -> Self {
        deployment.to_string()
    }
}

impl From<String> for DeploymentRef {
    fn from(text: String) -> Self {
        match text
            .split_once('#')
            .map(|(deployment, release)| (deployment, release.parse()))
        {
            Some((deployment, Ok(release))) => Self {
                deployment: deployment.to_owned(),
                release: Some(release),
            },
            Some((_, Err(_))) | None => Self {
                deployment: text,
                release: None,
            },
        }
    }
}

/// A webhook that receives messages about a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSpec {
    /// The URL that receives the messages.
    pub url: String,
    /// The names of the events that are sent.
    pub events: Vec<String>,
    /// Additional headers of each request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The base URL that the client used to reach the server, for links in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether messages contain the URL of the output stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
    /// Whether that stream contains files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams_files: bool,
    /// The URL of the output stream, for a process that renders messages but cannot sign the URL. It is not
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_url: Option<String>,
}

/// The API that a job came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The Cog API.
    Cog,
    /// The Replicate API.
    Replicate,
    /// The Runpod API.
    Runpod,
    /// OpenAI's API.
    #[serde(rename = "openai")]
    OpenAi,
    /// The Workers AI API.
    WorkersAi,
}

/// The main facts about a job, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// The id of the job, unique in the account.
    pub id: JobId,
    /// The account that owns the job.
    pub account: Account,
    /// The function of the model that the job calls.
    pub kind: JobKind,
    /// The model and version that the job is for.
    pub target: Target,
    /// The API that the job came by.
    pub api: Api,
    /// The status of the job.
    pub status: Status,
    /// When the job was accepted.
    pub created_at: Timestamp,
    /// When the last attempt began.
    pub started_at: Option<Timestamp>,
    /// When the job ended.
    pub completed_at: Option<Timestamp>,
    /// The beginning of the error of a failed job, at most [`JobSummary::MAX_ERROR`] characters.
    pub error: Option<String>,
}

impl JobSummary {
    /// The most characters of the error in a summary.
    pub const MAX_ERROR: usize = 500;
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// When the job ended.
    pub completed_at: Timestamp,
    /// The output, as JSON.
    #[serde(with = "wire::optional_json")]
    pub output: Option<Bytes>,
    /// What the job printed.
    pub logs: String,
    /// Why the job failed.
    pub error: Option<String>,
    /// The metrics that the model recorded, and `predict_time`.
    pub metrics: Map<String, Value>,
    /// What is known about the remote worker; absent for jobs that ran here.
    pub remote: Option<RemoteFacts>,
}

impl Completion {
    /// The completion of a job about which nothing is known any more.
    pub fn empty() -> Self {
        Self {
            completed_at: Timestamp::UNIX_EPOCH,
            output: None,
            logs: String::new(),
            error: None,
            metrics: Map::new(),
            remote: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_follows_its_deployment_in_text() {
        for (text, deployment, release) in [
            ("ann/app#2", "ann/app", Some(2)),
            ("ann/app", "ann/app", None),
            ("ann/app#x", "ann/app#x", None),
        ] {
            let parsed = DeploymentRef::from(text.to_owned());
            assert_eq!(
                (parsed.deployment.as_str(), parsed.release),
                (deployment, release)
            );
            assert_eq!(parsed.to_string(), text);
        }
    }
}
