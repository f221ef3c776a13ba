//! Settings of a fleet that concern all models.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::endpoint::BackendUrl;

/// Limits for all models of a router together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetLimits {
    /// The largest body that is kept for retries, in bytes. Larger ones are streamed and never retried.
    pub buffer: usize,
    /// The most bytes that the bodies of all waiting requests may occupy. Above it a model is full.
    pub waiting_memory: usize,
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            buffer: 8 * 1024 * 1024,
            waiting_memory: 256 * 1024 * 1024,
        }
    }
}

/// How host names and SRV records are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DnsConfig {
    /// The name servers; empty means those of the system.
    pub servers: Vec<SocketAddr>,
    /// How often names are resolved again.
    pub interval: Duration,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            interval: Duration::from_secs(5),
        }
    }
}

/// The agent of Consul that lists the instances of services.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConsulConfig {
    /// The URL of its HTTP API.
    pub url: BackendUrl,
    /// The token of the ACL system, which is never printed.
    pub token: Option<String>,
    /// The datacenter; `None` is the agent's own.
    pub datacenter: Option<String>,
}

impl Default for ConsulConfig {
    fn default() -> Self {
        Self {
            url: BackendUrl::parse("http://127.0.0.1:8500").expect("the URL is valid"),
            token: None,
            datacenter: None,
        }
    }
}

impl fmt::Debug for ConsulConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsulConfig")
            .field("url", &self.url)
            .field("datacenter", &self.datacenter)
            .finish_non_exhaustive()
    }
}

/// Active health checks of backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeConfig {
    /// The time between two checks of a backend.
    pub interval: Duration,
    /// The time that one check may take.
    pub timeout: Duration,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
        }
    }
}
