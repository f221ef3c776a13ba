//! Discovery: finds the addresses of endpoints that the configuration does not list.
//!
//! Each source has a task that reports a list whenever it changes. The control plane keeps the last list
//! of a source that fails, so that the loss of a name server or of Consul changes nothing.

mod consul;
mod dns;
mod retry_pause;

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::dns::DnsQuestion;
pub(crate) use self::retry_pause::RetryPause;
use crate::control::ControlShared;
use crate::fleet::{BackendKind, BackendUrl, ConsulConfig, Discovery, DnsConfig, Fleet};

/// A source of endpoints that is asked again and again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum DiscoverySource {
    /// The addresses of a host name: `HOST:PORT`.
    Dns { name: String, config: DnsConfig },
    /// The SRV records of a name.
    Srv { name: String, config: DnsConfig },
    /// The instances of a service of Consul.
    Consul {
        service: String,
        config: ConsulConfig,
    },
}

impl DiscoverySource {
    /// The source of this address; `None` if nothing has to be asked.
    pub(crate) fn of(address: &Discovery, fleet: &Fleet) -> Option<Self> {
        match address {
            Discovery::Url(_) | Discovery::Join => None,
            Discovery::Dns(name) => Some(Self::Dns {
                name: name.clone(),
                config: fleet.dns.clone(),
            }),
            Discovery::Srv(name) => Some(Self::Srv {
                name: name.clone(),
                config: fleet.dns.clone(),
            }),
            Discovery::Consul(service) => Some(Self::Consul {
                service: service.clone(),
                config: fleet.consul.clone(),
            }),
        }
    }

    /// Whether both ask for the same thing, perhaps with other settings.
    pub(crate) fn is_same_name(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// The source as in the file, for messages.
impl fmt::Display for DiscoverySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { name, .. } => write!(f, "dns {name}"),
            Self::Srv { name, .. } => write!(f, "srv {name}"),
            Self::Consul { service, .. } => write!(f, "consul {service}"),
        }
    }
}

/// An endpoint that a source has found. What it says about itself replaces what the file says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundEndpoint {
    pub(crate) url: BackendUrl,
    pub(crate) permits: Option<u32>,
    /// Its share of the traffic relative to others of the same source.
    pub(crate) weight: Option<f64>,
    pub(crate) kind: Option<BackendKind>,
}

impl FoundEndpoint {
    pub(crate) fn new(url: BackendUrl) -> Self {
        Self {
            url,
            permits: None,
            weight: None,
            kind: None,
        }
    }
}

/// Reports what a source finds, until `stop`.
pub(crate) async fn run(
    control: Arc<ControlShared>,
    source: DiscoverySource,
    stop: CancellationToken,
) {
    let asking = async {
        match &source {
            DiscoverySource::Dns { name, config } => {
                dns::run(&control, &source, DnsQuestion::Addresses(name), config).await;
            }
            DiscoverySource::Srv { name, config } => {
                dns::run(&control, &source, DnsQuestion::Services(name), config).await;
            }
            DiscoverySource::Consul { service, config } => {
                consul::run(&control, &source, service, config).await;
            }
        }
    };
    stop.run_until_cancelled(asking).await;
}
