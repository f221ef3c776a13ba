//! The response of `GET /admin/status`. Sections that the server does not have, or that the account may not
//! see, are empty.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

/// The state of a server.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) server: ServerInfo,
    /// `all`, or `account` if the client sees only its own account.
    pub(crate) scope: String,
    #[serde(default)]
    pub(crate) models: Vec<ModelRow>,
    #[serde(default)]
    pub(super) queues: Vec<QueueRow>,
    #[serde(default)]
    pub(super) children: Vec<ProcessRow>,
    #[serde(default)]
    pub(super) gpus: Vec<GpuRow>,
    #[serde(default)]
    pub(super) endpoints: Vec<EndpointWorkers>,
    #[serde(default)]
    pub(super) directors: Vec<DirectorRow>,
    #[serde(default)]
    pub(super) replicas: Vec<ReplicaRow>,
    #[serde(default)]
    pub(super) router: RoutedModels,
}

/// The server process.
#[derive(Debug, Deserialize)]
pub(crate) struct ServerInfo {
    pub(crate) command: String,
}

/// A model, an endpoint, or a model of a router.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelRow {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(super) state: ModelStateRow,
    pub(super) slots: usize,
    pub(super) slots_free: usize,
    pub(super) waiting: usize,
    pub(super) running: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct ModelStateRow {
    pub(super) health: String,
    pub(super) detail: Option<String>,
}

/// The queue of a model.
#[derive(Debug, Deserialize)]
pub(super) struct QueueRow {
    pub(super) model: String,
    pub(super) oldest_wait_s: Option<f64>,
    #[serde(default)]
    pub(super) accounts: Vec<ShareRow>,
}

/// The jobs of one account in a queue.
#[derive(Debug, Deserialize)]
pub(super) struct ShareRow {
    pub(super) account: Option<String>,
    pub(super) waiting: usize,
    pub(super) running: usize,
    pub(super) oldest_wait_s: Option<f64>,
}

/// What a process is called: `local/echo#0`, or `local/echo spare` if it waits to replace another one.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessName {
    pub(super) model: String,
    number: usize,
    /// How much of the model a spare has loaded.
    spare: Option<String>,
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spare {
            Some(_) => write!(f, "{} spare", self.model),
            None => write!(f, "{}#{}", self.model, self.number),
        }
    }
}

/// One process of a model.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessRow {
    #[serde(flatten)]
    pub(super) name: ProcessName,
    pub(super) pid: Option<u32>,
    pub(super) state: String,
    pub(super) since: Timestamp,
    pub(super) slots: usize,
    pub(super) jobs: usize,
    pub(super) memory_bytes: Option<u64>,
    pub(super) restarts: u64,
    pub(super) last_end: Option<String>,
}

/// A GPU of the machine.
#[derive(Debug, Deserialize)]
pub(super) struct GpuRow {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) memory_total_bytes: Option<u64>,
    pub(super) memory_used_bytes: Option<u64>,
    pub(super) utilization_percent: Option<u32>,
    pub(super) temperature_celsius: Option<u32>,
    pub(super) xid_errors: u64,
    pub(super) cordoned_by_xid: Option<u64>,
    pub(super) children: Vec<GpuProcessRow>,
    pub(super) other_processes: Option<usize>,
    pub(super) other_memory_bytes: Option<u64>,
}

/// A process of a model on a GPU.
#[derive(Debug, Deserialize)]
pub(super) struct GpuProcessRow {
    #[serde(flatten)]
    pub(super) name: ProcessName,
    pub(super) pid: Option<u32>,
    pub(super) memory_bytes: Option<u64>,
}

/// An endpoint of Runpod's platform API.
#[derive(Debug, Deserialize)]
pub(super) struct EndpointWorkers {
    pub(super) name: String,
    pub(super) workers: Vec<WorkerRow>,
}

/// A Runpod worker.
#[derive(Debug, Deserialize)]
pub(super) struct WorkerRow {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) jobs: usize,
    pub(super) last_seen_s: f64,
}

/// A director of a cluster.
#[derive(Debug, Deserialize)]
pub(super) struct DirectorRow {
    pub(super) id: String,
    pub(super) models: Vec<String>,
    pub(super) slots: usize,
    pub(super) running: usize,
    pub(super) draining: bool,
    pub(super) last_seen_s: f64,
}

/// An API process of a cluster.
#[derive(Debug, Deserialize)]
pub(super) struct ReplicaRow {
    pub(super) id: String,
    pub(super) last_seen_s: f64,
}

/// The models of a router with their backends.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RoutedModels {
    pub(super) models: Vec<RoutedModelRow>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RoutedModelRow {
    pub(super) name: String,
    pub(super) endpoints: Vec<BackendRow>,
}

/// A backend of a router.
#[derive(Debug, Deserialize)]
pub(super) struct BackendRow {
    pub(super) url: String,
    pub(super) kind: String,
    pub(super) health: String,
    pub(super) permits: usize,
    pub(super) used: usize,
    pub(super) latency_ms: Option<f64>,
}
