//! The documents that the page reads.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::health::SetupStatus;
use tidegate_core::record::Api;
use tidegate_core::{Account, JobKind, Status};

use crate::admin::ANONYMOUS;

/// The command that runs a server with the web UI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerCommand {
    /// `tidegate serve`
    Serve,
    /// `tidegate platform`
    Platform,
    /// `tidegate api`
    Api,
    /// `tidegate router`
    Router,
}

/// Who the client is, and what the server has.
#[derive(Debug, Serialize)]
pub(super) struct Session<'a> {
    pub(super) account: &'a str,
    pub(super) role: &'static str,
    pub(super) tokens: bool,
    pub(super) server: ServerDocument<'a>,
    pub(super) apis: Vec<Api>,
    /// The other origins whose files the page may show, as in its content security policy.
    pub(super) files_origins: Vec<String>,
    pub(super) pages: Vec<&'static str>,
}

/// The server process.
#[derive(Debug, Serialize)]
pub(super) struct ServerDocument<'a> {
    pub(super) command: ServerCommand,
    pub(super) version: &'static str,
    pub(super) epoch: &'a str,
    pub(super) started_at: String,
}

/// What kind of thing runs the jobs of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModelKind {
    /// A model of this server or of the directors of its cluster.
    Model,
    /// A model that a client created, whose versions come from trainings.
    Trained,
    /// An endpoint whose jobs Runpod workers fetch.
    Endpoint,
    /// A model of the backends of a router.
    Routed,
}

#[derive(Debug, Serialize)]
pub(super) struct Models {
    pub(super) models: Vec<ModelSummary>,
}

/// A model in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ModelSummary {
    pub(super) kind: ModelKind,
    pub(super) name: String,
    /// The only account that sees the model; all accounts see those without one.
    #[serde(skip)]
    pub(super) owner: Option<Account>,
    pub(super) version: Option<String>,
    pub(super) description: Option<String>,
    pub(super) state: ModelState,
    pub(super) chat: bool,
    pub(super) trainable: bool,
}

/// The health of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ModelState {
    pub(super) health: &'static str,
    /// The last line of the setup while it runs, and why the model is not available.
    pub(super) detail: Option<String>,
    pub(super) since: Option<String>,
}

/// A model with everything that its form needs.
#[derive(Debug, Serialize)]
pub(super) struct ModelDocument<'a> {
    #[serde(flatten)]
    pub(super) summary: ModelSummary,
    pub(super) schema: Option<&'a RawValue>,
    pub(super) example: Value,
    pub(super) run: RunRequest,
    pub(super) versions: Vec<VersionDocument>,
    pub(super) setup: Option<SetupDocument>,
}

/// How the page runs the model: a path below the root of the server, and the API.
#[derive(Debug, Serialize)]
pub(super) struct RunRequest {
    pub(super) path: String,
    pub(super) style: RunStyle,
}

/// The API that runs a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunStyle {
    Replicate,
    Runpod,
    Chat,
    Cog,
}

#[derive(Debug, Serialize)]
pub(super) struct VersionDocument {
    pub(super) version: String,
    pub(super) health: &'static str,
    /// Whether it accepts jobs: the current version of a folder does, and every trained one.
    pub(super) runnable: bool,
}

/// The setup of a model.
#[derive(Debug, Serialize)]
pub(super) struct SetupDocument {
    pub(super) status: SetupStatus,
    /// For operators only: logs may contain tracebacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<String>,
    pub(super) started_at: String,
    pub(super) took_s: Option<f64>,
}

/// A job without its data.
#[derive(Debug, Serialize)]
pub(super) struct JobDocument<'a> {
    pub(super) id: &'a str,
    pub(super) account: &'a str,
    pub(super) kind: JobKind,
    pub(super) api: Api,
    pub(super) model: &'a str,
    /// The name of the endpoint, if the job belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) endpoint: Option<&'a str>,
    pub(super) version: &'a str,
    pub(super) status: Status,
    pub(super) created_at: String,
    pub(super) started_at: Option<String>,
    pub(super) completed_at: Option<String>,
    pub(super) deadline: Option<String>,
    pub(super) waited_s: f64,
    pub(super) loaded_s: Option<f64>,
    pub(super) ran_s: Option<f64>,
    pub(super) attempt: u64,
    /// The remote worker that runs the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<&'a str>,
    pub(super) error: Option<&'a str>,
    pub(super) metrics: &'a Map<String, Value>,
    pub(super) warnings: &'a [String],
    pub(super) data_removed: bool,
    pub(super) output_is_list: bool,
    /// Whether input and output are missing because the job belongs to another account.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) private: bool,
}

/// A job with its data.
#[derive(Debug, Serialize)]
pub(super) struct JobWithData<'a> {
    #[serde(flatten)]
    pub(super) job: JobDocument<'a>,
    #[serde(flatten)]
    pub(super) data: Option<JobData<'a>>,
    pub(super) logs: &'a str,
}

/// The input and output of a job.
#[derive(Debug, Serialize)]
pub(super) struct JobData<'a> {
    pub(super) input: Option<&'a RawValue>,
    pub(super) output: Option<&'a RawValue>,
}

/// One value of the output of a job.
#[derive(Debug, Serialize)]
pub(super) struct OutputValue<'a> {
    pub(super) index: usize,
    pub(super) value: &'a RawValue,
}

/// A part of the logs of a job.
#[derive(Debug, Serialize)]
pub(super) struct LogText<'a> {
    pub(super) text: &'a str,
}

/// The name of an account in paths and documents.
pub(super) fn account_name(account: &Account) -> &str {
    if account.is_anonymous() {
        ANONYMOUS
    } else {
        account.as_str()
    }
}

/// The seconds between two times; zero if the clock was set back between them.
pub(super) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}
