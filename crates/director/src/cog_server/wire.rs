//! The messages of a Cog server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::health::Health;
use tidegate_core::{JobId, LogSource, MetricMode};

/// `GET /health-check`.
#[derive(Debug, Deserialize)]
pub(super) struct HealthBody {
    status: String,
}

impl HealthBody {
    pub(super) fn health(&self) -> Health {
        match self.status.as_str() {
            "READY" => Health::Ready,
            "BUSY" => Health::Busy,
            "SETUP_FAILED" => Health::SetupFailed,
            "DEFUNCT" => Health::Defunct,
            "UNKNOWN" => Health::Unknown,
            // UNHEALTHY too: it may recover.
            _ => Health::Starting,
        }
    }
}

/// A request for a prediction or a training.
#[derive(Debug, Serialize)]
pub(super) struct RequestBody<'a> {
    pub(super) id: &'a JobId,
    pub(super) input: &'a RawValue,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) context: &'a BTreeMap<String, String>,
}

/// The result: the body of the response, and the data of the event `completed`.
#[derive(Debug, Deserialize)]
pub(super) struct ResultBody {
    pub(super) status: String,
    #[serde(default)]
    pub(super) output: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) logs: String,
    #[serde(default)]
    pub(super) metrics: Map<String, Value>,
}

/// The data of the event `output`.
#[derive(Debug, Deserialize)]
pub(super) struct OutputEvent {
    pub(super) chunk: Box<RawValue>,
}

/// The data of the event `log`.
#[derive(Debug, Deserialize)]
pub(super) struct LogEvent {
    pub(super) source: LogSource,
    pub(super) data: String,
}

/// The data of the event `metric`.
#[derive(Debug, Deserialize)]
pub(super) struct MetricEvent {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) mode: MetricMode,
}
