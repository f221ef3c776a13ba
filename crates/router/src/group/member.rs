//! An endpoint as a member of a model: the shared live state and what the configuration of the model says.

use std::sync::Arc;

use tidegate_net::upstream::UpstreamAddress;
use tokio::time::Instant;

use super::Ask;
use crate::choose::Candidate;
use crate::endpoint::{LiveEndpoint, ResolvedEndpoint};
use crate::fleet::{BackendUrl, EndpointConfig};

/// An endpoint of one model.
pub(crate) struct GroupMember {
    live: Arc<LiveEndpoint>,
    url: BackendUrl,
    address: UpstreamAddress,
    config: Arc<EndpointConfig>,
    local: bool,
}

impl GroupMember {
    pub(crate) fn new(live: Arc<LiveEndpoint>, resolved: &ResolvedEndpoint) -> Self {
        Self {
            live,
            address: resolved.url.upstream_address(resolved.config.http),
            url: resolved.url.clone(),
            config: resolved.config.clone(),
            local: resolved.local,
        }
    }

    pub(crate) fn live(&self) -> &Arc<LiveEndpoint> {
        &self.live
    }

    pub(crate) fn url(&self) -> &BackendUrl {
        &self.url
    }

    pub(crate) fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    pub(crate) fn config(&self) -> &Arc<EndpointConfig> {
        &self.config
    }

    /// The endpoint as discovery found it.
    pub(crate) fn resolved(&self) -> ResolvedEndpoint {
        ResolvedEndpoint {
            key: self.live.key().clone(),
            url: self.url.clone(),
            config: self.config.clone(),
            permits: self.live.limit(),
            local: self.local,
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Its counters at this moment, for this request.
    pub(super) fn candidate(&self, ask: &Ask, now: Instant) -> Candidate {
        Candidate {
            used: self.live.used(),
            limit: self.live.limit(),
            weight: self.config.weight,
            state: self.live.state(now),
            local: self.local,
            excluded: ask.excluded.contains(self.live.key()),
            reported_queue: self.live.reported_queue(),
            latency: self.live.latency(now),
            hash: self.live.hash(),
        }
    }

    /// Takes a permit, and the right to try an endpoint whose breaker is open.
    pub(super) fn try_acquire(&self, is_trial: bool, now: Instant) -> bool {
        if !self.live.permits().try_acquire() {
            return false;
        }
        let acquired = !is_trial || self.live.claim_trial(now);
        if !acquired {
            // A request that meanwhile found no free permit waits for the trial, which holds one.
            self.live.permits().release();
        }
        acquired
    }
}
