//! From the configuration and what was found to the endpoints of each model. A pure function.

use std::collections::HashMap;
use std::sync::Arc;

use crate::discovery::FoundEndpoint;
use crate::endpoint::{EndpointKey, ResolvedEndpoint};
use crate::fleet::{Discovery, EndpointConfig, Fleet};

/// What discovery and the backends have told.
pub(super) trait Findings {
    /// The endpoints that were found for an address that is not a URL.
    fn found(&self, address: &Discovery, model: &str) -> Vec<FoundEndpoint>;

    /// The permits that a backend reports itself.
    fn reported_permits(&self, endpoint: &EndpointKey) -> Option<u32>;
}

/// The endpoints of each model by its name.
pub(super) fn resolve(
    fleet: &Fleet,
    findings: &impl Findings,
) -> HashMap<String, Vec<ResolvedEndpoint>> {
    let endpoints = |config: &EndpointConfig, model: &str| match &config.address {
        Discovery::Url(url) => vec![FoundEndpoint::new(url.clone())],
        other => findings.found(other, model),
    };
    let models = fleet.models().iter().map(|model| {
        let mut resolved = Vec::new();
        for config in &model.endpoints {
            let local = config.site.is_empty() || config.site == fleet.site;
            for found in endpoints(config, &model.name) {
                resolved.push(endpoint(config, found, local, findings));
            }
        }
        (model.name.clone(), resolved)
    });
    models.collect()
}

fn endpoint(
    config: &EndpointConfig,
    found: FoundEndpoint,
    local: bool,
    findings: &impl Findings,
) -> ResolvedEndpoint {
    let key = EndpointKey::of(&found.url);
    let kind = found.kind.unwrap_or(config.kind);
    let permits = found
        .permits
        .or(config.permits)
        .or_else(|| findings.reported_permits(&key))
        .unwrap_or_else(|| kind.default_permits());
    let config = EndpointConfig {
        kind,
        weight: config.weight * found.weight.unwrap_or(1.0),
        ..config.clone()
    };
    ResolvedEndpoint {
        key,
        url: found.url,
        config: Arc::new(config),
        permits,
        local,
    }
}
