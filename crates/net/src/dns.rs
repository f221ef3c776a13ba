//! Name resolution for discovery: all addresses of a host, and SRV records.
//!
//! Without configured name servers, addresses come from the resolver of the system, which also knows
//! `/etc/hosts`; the system has no call for SRV records.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// The time for an answer of a name server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks name servers. Answers are not cached.
pub struct NameResolver {
    resolver: TokioResolver,
    /// Whether the name servers are those of the configuration.
    is_configured: bool,
}

/// The target of an SRV record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Targets with a lower number are tried first.
    pub priority: u16,
    /// The share among targets of the same priority.
    pub weight: u16,
    /// The port.
    pub port: u16,
    /// The host name.
    pub target: String,
}

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("failed to resolve `{name}`: {reason}")]
pub struct DnsError {
    name: String,
    reason: String,
}

impl DnsError {
    /// The name and why it could not be resolved.
    pub fn new(name: &str, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            reason,
        }
    }
}

impl NameResolver {
    /// A resolver that asks these name servers, or those of the system if there are none.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, DnsError> {
        let mut builder = if servers.is_empty() {
            TokioResolver::builder_tokio()
                .map_err(|error| DnsError::new("/etc/resolv.conf", error.to_string()))?
        } else {
            let servers = servers.iter().map(|server| name_server(*server)).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        options.cache_size = 0;
        options.timeout = TIMEOUT;
        options.attempts = 2;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Never;
        let resolver = builder
            .build()
            .map_err(|error| DnsError::new("the configuration", error.to_string()))?;
        Ok(Self {
            resolver,
            is_configured: !servers.is_empty(),
        })
    }

    /// All addresses of a host; at least one.
    pub async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, DnsError> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let found = if self.is_configured {
            let found = self.resolver.lookup_ip(host).await;
            found
                .map(|found| found.iter().collect())
                .map_err(|error| DnsError::new(host, error.to_string()))
        } else {
            let found: io::Result<Vec<IpAddr>> = tokio::net::lookup_host((host, 0))
                .await
                .map(|found| found.map(|address| address.ip()).collect());
            found.map_err(|error| DnsError::new(host, error.to_string()))
        };
        let mut found = found?;
        found.sort();
        found.dedup();
        if found.is_empty() {
            return Err(DnsError::new(host, "it has no address".to_owned()));
        }
        Ok(found)
    }

    /// The SRV records of a name; at least one.
    pub async fn services(&self, name: &str) -> Result<Vec<ServiceRecord>, DnsError> {
        let found = self.resolver.srv_lookup(name).await;
        let found = found.map_err(|error| DnsError::new(name, error.to_string()))?;
        let records: Vec<_> = found
            .answers()
            .iter()
            .filter_map(|record| match &record.data {
                RData::SRV(srv) => Some(ServiceRecord {
                    priority: srv.priority,
                    weight: srv.weight,
                    port: srv.port,
                    target: srv.target.to_utf8().trim_end_matches('.').to_owned(),
                }),
                _ => None,
            })
            .collect();
        if records.is_empty() {
            return Err(DnsError::new(name, "it has no SRV records".to_owned()));
        }
        Ok(records)
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.to_vec())
}
