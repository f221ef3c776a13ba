//! What identifies an endpoint, and the endpoints that discovery hands over.

use std::fmt;
use std::sync::Arc;

use crate::fleet::{BackendUrl, EndpointConfig};

/// The identity of an endpoint: its URL. Models that use the same URL share its permits and health.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointKey(Arc<str>);

impl EndpointKey {
    /// The key of the endpoint at this URL.
    pub fn of(url: &BackendUrl) -> Self {
        Self(url.to_string().into())
    }

    /// The URL as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A number that is the same in every process, for consistent hashing (FNV-1a).
    pub(crate) fn stable_hash(&self) -> u64 {
        self.0.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}

impl fmt::Display for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An endpoint of a model with a known address, as discovery found it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedEndpoint {
    /// The identity.
    pub key: EndpointKey,
    /// The address.
    pub url: BackendUrl,
    /// The part of the configuration that it was found by.
    pub config: Arc<EndpointConfig>,
    /// The most requests that it runs at once. If models that share the endpoint differ, the largest
    /// number is in force.
    pub permits: u32,
    /// Whether it stands at the site of this router.
    pub local: bool,
}

impl ResolvedEndpoint {
    /// A local endpoint at this URL; its permits are those of the configuration or the default of its
    /// kind.
    pub fn new(url: BackendUrl, config: Arc<EndpointConfig>) -> Self {
        Self {
            key: EndpointKey::of(&url),
            permits: config
                .permits
                .unwrap_or_else(|| config.kind.default_permits()),
            url,
            config,
            local: true,
        }
    }
}
