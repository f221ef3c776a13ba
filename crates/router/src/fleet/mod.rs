//! The configuration of a fleet: an immutable snapshot. A request holds the snapshot that was in force
//! when it arrived; a reload replaces it for later requests.

mod account;
mod backend_flag;
mod diff;
mod endpoint;
mod error;
mod file;
mod file_values;
mod model;
mod parse;
mod settings;
mod site;
mod syntax;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use account::{AccountConfig, JoinKey, PriorityClass};
pub use backend_flag::{BackendFlag, InvalidBackendFlag};
pub use diff::FleetDiff;
pub use endpoint::{
    BackendKind, BackendUrl, Discovery, EndpointConfig, HttpVersion, InvalidBackendUrl, Scheme,
    SecretHeader,
};
pub use error::{FleetError, FleetProblem};
pub use model::{
    Affinity, Algorithm, CapacityRetries, CostConfig, FleetModel, QueueConfig, RetryConfig,
    RoutingConfig, Strategy, TimeoutConfig, WebSocketConfig,
};
pub use parse::{FleetSource, SecretSource, parse_fleet};
pub use settings::{ConsulConfig, DnsConfig, FleetLimits, ProbeConfig};
pub use site::{SITE_KEY_HEADER, SiteConfig};

/// The configuration of a router.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// The site of this router; empty if it has no name.
    pub site: String,
    /// Limits for all models together.
    pub limits: FleetLimits,
    /// The routers of other sites.
    pub sites: Vec<SiteConfig>,
    /// The accounts; without any, all clients share the anonymous account.
    pub accounts: Vec<AccountConfig>,
    /// The keys with which backends register themselves.
    pub join_keys: Vec<JoinKey>,
    /// How names are resolved.
    pub dns: DnsConfig,
    /// The agent of Consul.
    pub consul: ConsulConfig,
    /// Active health checks.
    pub probe: ProbeConfig,
    /// The Unix socket that receives one line per inference.
    pub events_socket: Option<PathBuf>,
    models: Vec<Arc<FleetModel>>,
    /// The index in `models` of each name and alias.
    by_name: HashMap<Box<str>, usize>,
}

/// Two models have the same name or alias.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two models are called `{0}`")]
pub struct DuplicateModelName(pub String);

impl Fleet {
    /// This fleet with these models instead of its own.
    pub fn with_models(mut self, models: Vec<FleetModel>) -> Result<Self, DuplicateModelName> {
        let mut by_name = HashMap::new();
        for (index, model) in models.iter().enumerate() {
            for name in std::iter::once(&model.name).chain(&model.aliases) {
                if by_name.insert(name.as_str().into(), index).is_some() {
                    return Err(DuplicateModelName(name.clone()));
                }
            }
        }
        self.models = models.into_iter().map(Arc::new).collect();
        self.by_name = by_name;
        Ok(self)
    }

    /// The model with this name or alias.
    pub fn model(&self, name: &str) -> Option<&Arc<FleetModel>> {
        self.index_of(name).map(|index| &self.models[index])
    }

    /// The position in [`models`](Self::models) of the model with this name or alias.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// All models, in the order of the file.
    pub fn models(&self) -> &[Arc<FleetModel>] {
        &self.models
    }
}
