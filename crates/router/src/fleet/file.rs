//! The types of `fleet.toml` as it is written. Values are not checked here, except for their TOML type;
//! `parse` turns them into the configuration. Every value keeps its position for messages.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::file_values::{Decimal, FileSecret, Quantity, RoutingParam, Whole};

/// An optional value with its position.
pub(super) type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct FleetFile {
    pub(super) site: Key<String>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
    #[serde(default)]
    pub(super) dns: DnsFile,
    #[serde(default)]
    pub(super) consul: ConsulFile,
    #[serde(default)]
    pub(super) probe: ProbeFile,
    #[serde(default)]
    pub(super) events: EventsFile,
    #[serde(default)]
    pub(super) remote_site: Vec<Spanned<SiteFile>>,
    #[serde(default)]
    pub(super) model: Vec<Spanned<ModelFile>>,
    #[serde(default)]
    pub(super) account: Vec<Spanned<AccountFile>>,
    #[serde(default)]
    pub(super) join_key: Vec<Spanned<JoinKeyFile>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitsFile {
    pub(super) buffer: Key<Quantity>,
    pub(super) waiting_memory: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DnsFile {
    #[serde(default)]
    pub(super) servers: Vec<Spanned<String>>,
    pub(super) interval: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ConsulFile {
    pub(super) url: Key<String>,
    pub(super) token: Key<FileSecret>,
    pub(super) datacenter: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ProbeFile {
    pub(super) interval: Key<Quantity>,
    pub(super) timeout: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct EventsFile {
    pub(super) socket: Key<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct SiteFile {
    pub(super) name: Key<String>,
    #[serde(default)]
    pub(super) urls: Vec<Spanned<String>>,
    pub(super) dns: Key<String>,
    pub(super) step: Key<Whole>,
    pub(super) flow: Key<String>,
    pub(super) key: Key<FileSecret>,
    pub(super) key_file: Key<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ModelFile {
    pub(super) name: Key<String>,
    #[serde(default)]
    pub(super) aliases: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) sites: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) queue: QueueFile,
    #[serde(default)]
    pub(super) routing: RoutingFile,
    #[serde(default)]
    pub(super) timeout: TimeoutFile,
    #[serde(default)]
    pub(super) retry: RetryFile,
    #[serde(default)]
    pub(super) affinity: AffinityFile,
    #[serde(default)]
    pub(super) websocket: WebSocketFile,
    #[serde(default)]
    pub(super) cost: CostFile,
    #[serde(default)]
    pub(super) endpoint: Vec<Spanned<EndpointFile>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct QueueFile {
    pub(super) algorithm: Key<String>,
    pub(super) capacity: Key<Whole>,
    pub(super) site_capacity: Key<Whole>,
    pub(super) max_wait: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RoutingFile {
    pub(super) strategy: Key<String>,
    #[serde(default)]
    pub(super) params: BTreeMap<Spanned<String>, Spanned<RoutingParam>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct TimeoutFile {
    pub(super) total: Key<Quantity>,
    pub(super) idle: Key<Quantity>,
    pub(super) first_byte: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RetryFile {
    pub(super) errors: Key<Whole>,
    #[serde(default)]
    pub(super) capacity: CapacityRetryFile,
    pub(super) budget: Key<Decimal>,
    pub(super) entry: Key<Whole>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct CapacityRetryFile {
    pub(super) small: Key<Whole>,
    pub(super) large: Key<Whole>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AffinityFile {
    pub(super) by: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct WebSocketFile {
    pub(super) max_duration: Key<Quantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct CostFile {
    pub(super) neurons_per_token: Key<Decimal>,
    pub(super) neurons_per_request: Key<Decimal>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct EndpointFile {
    pub(super) url: Key<String>,
    pub(super) dns: Key<String>,
    pub(super) srv: Key<String>,
    pub(super) consul: Key<String>,
    pub(super) join: Key<bool>,
    pub(super) kind: Key<String>,
    pub(super) upstream_model: Key<String>,
    pub(super) permits: Key<Whole>,
    pub(super) site: Key<String>,
    pub(super) weight: Key<Decimal>,
    pub(super) http: Key<Whole>,
    #[serde(default)]
    pub(super) headers: BTreeMap<Spanned<String>, Spanned<FileSecret>>,
    pub(super) probe_path: Key<String>,
    pub(super) loopback: Key<String>,
    pub(super) detach_timeout: Key<Quantity>,
    pub(super) cancel_grace: Key<Quantity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AccountFile {
    pub(super) name: Key<String>,
    pub(super) token_hash: Key<FileSecret>,
    pub(super) max_concurrent: Key<Whole>,
    pub(super) rate: Key<String>,
    pub(super) priority: Key<String>,
    pub(super) admin: Key<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct JoinKeyFile {
    pub(super) name: Key<String>,
    pub(super) key_hash: Key<FileSecret>,
    #[serde(default)]
    pub(super) models: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) networks: Vec<Spanned<String>>,
    pub(super) max_ttl: Key<Quantity>,
}
