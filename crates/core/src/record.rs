//! What is written down about a job, so that it outlives the process that took it.
//!
//! A record is the truth about a job: what is queued, held in memory or shown to somebody follows from
//! it. It is written when the job is accepted, when the model begins, and when the job is over.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policy::JobPolicies;
use crate::remote::RemoteFacts;
use crate::{Account, JobId, JobKind, Status};

/// A job as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// What was asked for; never changes.
    pub spec: JobSpec,
    /// How often it was given to a model. A report that names an older number is from the past.
    pub attempt: u32,
    /// How far it has come.
    pub status: Status,
    /// When the model began, the last time.
    pub started_at: Option<Timestamp>,
    /// How it ended; absent until then.
    pub completion: Option<Completion>,
    /// Whether input, output and logs were removed because their time was over.
    pub data_removed: bool,
    /// Whether somebody was told that it stops.
    pub cancel_requested: bool,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Its id, unique in the account.
    pub id: JobId,
    /// Whose it is.
    pub account: Account,
    /// Which function.
    pub kind: JobKind,
    /// For whom: the model, and the version of it.
    pub target: Target,
    /// The checked input, one JSON object. Files in it are still addresses.
    pub input: Bytes,
    /// Where in the input addresses of files are, as JSON pointers.
    pub files: Vec<String>,
    /// The fields of the input that nobody may see again.
    pub secrets: Vec<String>,
    /// Notes for the model.
    pub context: BTreeMap<String, String>,
    /// Of a training: the model that what it gives becomes a version of, `owner/name`.
    pub destination: Option<String>,
    /// Who is told.
    pub hook: Option<WebhookSpec>,
    /// In whose words it is told and shown.
    pub api: Api,
    /// How it is treated where the APIs differ.
    pub policies: JobPolicies,
    /// After this moment nobody wants it any more.
    pub deadline: Option<Timestamp>,
    /// When it was accepted.
    pub created_at: Timestamp,
}

/// Which model a job is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// `owner/name`.
    pub model: String,
    /// 64 hexadecimal digits.
    pub version: String,
    /// The deployment that it came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentRef>,
}

/// A deployment, and which of its releases. Written down as `owner/name#2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DeploymentRef {
    /// `owner/name`; neither can hold a `#`.
    pub deployment: String,
    /// Not known of jobs that were written down without it.
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
    fn from(through: DeploymentRef) -> Self {
        through.to_string()
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

/// Who is told how a job goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSpec {
    /// Where.
    pub url: String,
    /// Which kinds of message, by their names.
    pub events: Vec<String>,
    /// Sent along.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The address by which the caller reached us, for messages that say where more is to be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Whether those messages say where the output can be read as it comes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
    /// Whether what can be read there are files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams_files: bool,
}

/// Which API a job came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Cog's.
    Cog,
    /// Replicate's.
    Replicate,
    /// Runpod's.
    Runpod,
}

/// A job in a few words, for lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSummary {
    /// Its id, unique in the account.
    pub id: JobId,
    /// Whose it is.
    pub account: Account,
    /// Which function.
    pub kind: JobKind,
    /// For whom.
    pub target: Target,
    /// By which API it came.
    pub api: Api,
    /// How far it has come.
    pub status: Status,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the model began, the last time.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub completed_at: Option<Timestamp>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// When.
    pub completed_at: Timestamp,
    /// What it gave, as JSON.
    pub output: Option<Bytes>,
    /// What it printed.
    pub logs: String,
    /// Why it failed.
    pub error: Option<String>,
    /// What the model noted, and `predict_time`.
    pub metrics: Map<String, Value>,
    /// What is known about the remote worker; absent for jobs that ran here.
    pub remote: Option<RemoteFacts>,
}

impl Completion {
    /// The end of a job of which nothing is known any more.
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

/// The last message about a job, kept until somebody has taken it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// The message's own id, the same over all attempts.
    pub id: String,
    /// Whose job it is about.
    pub account: Account,
    /// Which job.
    pub job: JobId,
    /// For which model the job was, `owner/name`.
    pub model: String,
    /// Where it goes.
    pub hook: WebhookSpec,
    /// What it says.
    pub body: Bytes,
    /// When it was written.
    pub created_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried next.
    pub next_at: Timestamp,
}

/// A letter that is not sent any more, without what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledMessage {
    /// The message's own id.
    pub id: String,
    /// Whose job it is about.
    pub account: Account,
    /// Which job.
    pub job: JobId,
    /// For which model the job was, `owner/name`.
    pub model: String,
    /// Where it went.
    pub url: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// What became of it.
    pub settled: Settlement,
}

/// That a letter is not sent any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Since when.
    pub at: Timestamp,
    /// Why it was given up; absent when somebody has taken it.
    pub given_up: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_written_behind_its_deployment() {
        for (text, deployment, release) in [
            ("ann/app#2", "ann/app", Some(2)),
            ("ann/app", "ann/app", None),
            ("ann/app#x", "ann/app#x", None),
        ] {
            let through = DeploymentRef::from(text.to_owned());
            assert_eq!(
                (through.deployment.as_str(), through.release),
                (deployment, release)
            );
            assert_eq!(through.to_string(), text);
        }
    }
}
