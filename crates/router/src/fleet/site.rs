//! The routers of other sites.

use super::endpoint::{BackendUrl, SecretHeader};

/// The header with the key of a site.
pub const SITE_KEY_HEADER: &str = "x-tidegate-site-key";

/// Another site and how to reach its routers.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteConfig {
    /// The name.
    pub name: String,
    /// The addresses of its routers.
    pub urls: Vec<BackendUrl>,
    /// A host name that resolves to its routers, with the port.
    pub dns: Option<String>,
    /// The distance for latency routing: sites of a lower step are tried first.
    pub step: u32,
    /// The resource flow that the site belongs to.
    pub flow: Option<String>,
    /// The key that proves that a request comes from a router of the fleet.
    pub key: Option<SecretHeader>,
}
