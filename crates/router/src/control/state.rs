//! The state of the control plane. It has no tasks and does no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::clock;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::file::FileSet;
use super::resolve::{Findings, resolve};
use super::status::{ControlStatus, SourceCondition, SourceStatus};
use crate::discovery::{DiscoverySource, FoundEndpoint};
use crate::endpoint::{EndpointKey, ResolvedEndpoint};
use crate::fleet::{BackendFlag, BackendUrl, Discovery, Fleet, FleetError};
use crate::join::Registrations;
use crate::learn::{LearnedBackend, LearnedBackends};
use crate::probe::ProbeTargets;
use crate::table::FleetRegistry;

/// The configuration in force and the endpoints that were found.
#[derive(Default)]
pub(crate) struct ControlState {
    fleet: Arc<Fleet>,
    sources: HashMap<DiscoverySource, SourceState>,
    pub(crate) registrations: Registrations,
    pub(super) backends: LearnedBackends,
    /// The permits that backends report themselves.
    reported_permits: HashMap<EndpointKey, u32>,
    /// What the registry has.
    applied: Option<AppliedFleet>,
    version: u64,
    loaded_at: Timestamp,
    failed_reloads: u64,
    last_error: Option<String>,
    /// The files of the last attempt to load a configuration.
    pub(super) files: FileSet,
}

/// A configuration with the endpoints of each model.
struct AppliedFleet {
    fleet: Arc<Fleet>,
    endpoints: HashMap<String, Vec<ResolvedEndpoint>>,
}

struct SourceState {
    found: Vec<FoundEndpoint>,
    condition: SourceCondition,
    error: Option<String>,
    /// Ends its task.
    _stop: DropGuard,
}

impl ControlState {
    pub(super) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Uses a configuration. Returns the sources that are new, with the tokens that end their tasks.
    pub(super) fn install(
        &mut self,
        fleet: Arc<Fleet>,
        stop: &CancellationToken,
    ) -> Vec<(DiscoverySource, CancellationToken)> {
        let mut old = std::mem::take(&mut self.sources);
        let mut started = Vec::new();
        for source in sources_of(&fleet) {
            if self.sources.contains_key(&source) {
                continue;
            }
            let state = old.remove(&source).unwrap_or_else(|| {
                let stop = stop.child_token();
                started.push((source.clone(), stop.clone()));
                // With other settings the last list is used until the first answer.
                let same = old.iter().find(|(other, _)| other.is_same_name(&source));
                SourceState {
                    found: same.map_or_else(Vec::new, |(_, state)| state.found.clone()),
                    condition: SourceCondition::Pending,
                    error: None,
                    _stop: stop.drop_guard(),
                }
            });
            self.sources.insert(source, state);
        }
        self.fleet = fleet;
        self.version += 1;
        self.loaded_at = clock::now();
        self.last_error = None;
        started
    }

    pub(super) fn reload_failed(&mut self, error: &FleetError) {
        self.failed_reloads += 1;
        self.last_error = Some(error.to_string());
    }

    pub(super) fn source_found(&mut self, source: &DiscoverySource, found: Vec<FoundEndpoint>) {
        let Some(state) = self.sources.get_mut(source) else {
            return;
        };
        match state.condition {
            SourceCondition::Failing => {
                tracing::info!(%source, endpoints = found.len(), "discovery works again");
            }
            SourceCondition::Pending | SourceCondition::Current if state.found != found => {
                tracing::info!(%source, endpoints = found.len(), "discovery found other endpoints");
            }
            SourceCondition::Pending | SourceCondition::Current => {}
        }
        state.condition = SourceCondition::Current;
        state.error = None;
        state.found = found;
    }

    pub(super) fn source_failed(&mut self, source: &DiscoverySource, error: String) {
        let Some(state) = self.sources.get_mut(source) else {
            return;
        };
        if state.condition != SourceCondition::Failing {
            let kept = state.found.len();
            tracing::warn!(%source, %error, kept, "discovery fails; the last list stays in use");
        }
        state.condition = SourceCondition::Failing;
        state.error = Some(error);
    }

    /// Uses what a backend of the command line told about its models.
    pub(crate) fn learned(&mut self, flag: &BackendFlag, learned: LearnedBackend) {
        if self.backends.learned(flag, learned) {
            self.fleet = Arc::new(self.backends.fleet());
            self.version += 1;
            self.loaded_at = clock::now();
        }
    }

    /// Keeps the models of a backend that did not answer.
    pub(crate) fn learning_failed(&mut self, flag: &BackendFlag, error: String) {
        self.backends.failed(flag, error);
    }

    /// Uses the permits that a backend reports, where the configuration says none.
    pub(crate) fn report_permits(&mut self, endpoint: EndpointKey, permits: u32) {
        self.reported_permits.insert(endpoint, permits);
    }

    /// Puts the endpoints into force, if they or the configuration have changed. Returns the endpoints to
    /// check then.
    pub(super) fn apply(&mut self, registry: &FleetRegistry) -> Option<ProbeTargets> {
        let endpoints = resolve(&self.fleet, self);
        if let Some(applied) = &self.applied
            && Arc::ptr_eq(&applied.fleet, &self.fleet)
            && applied.endpoints == endpoints
        {
            return None;
        }
        registry.apply(self.fleet.clone(), &endpoints);
        self.applied = Some(AppliedFleet {
            fleet: self.fleet.clone(),
            endpoints,
        });
        let targets = self.probe_targets();
        let known = &targets.endpoints;
        self.reported_permits
            .retain(|key, _| known.contains_key(key));
        Some(targets)
    }

    /// All endpoints; one that several models use is checked as the first of them says.
    fn probe_targets(&self) -> ProbeTargets {
        let mut targets = ProbeTargets {
            config: self.fleet.probe.clone(),
            endpoints: HashMap::new(),
        };
        let Some(applied) = &self.applied else {
            return targets;
        };
        let models = self.fleet.models().iter();
        for endpoint in models.flat_map(|model| &applied.endpoints[&model.name]) {
            let key = endpoint.key.clone();
            let endpoints = &mut targets.endpoints;
            endpoints.entry(key).or_insert_with(|| endpoint.clone());
        }
        targets
    }

    /// Whether every source has answered or failed.
    pub(super) fn is_settled(&self) -> bool {
        let mut states = self.sources.values();
        self.backends.is_settled()
            && states.all(|state| state.condition != SourceCondition::Pending)
    }

    pub(super) fn addresses(&self, of: &Discovery) -> Vec<BackendUrl> {
        match of {
            Discovery::Url(url) => vec![url.clone()],
            other => {
                let found = self.found(other, "");
                found.into_iter().map(|found| found.url).collect()
            }
        }
    }

    pub(super) fn status(&self) -> ControlStatus {
        let sources = self.sources.iter().map(|(source, state)| SourceStatus {
            source: source.to_string(),
            condition: state.condition,
            endpoints: state.found.len(),
            error: state.error.clone(),
        });
        let mut sources: Vec<_> = sources.chain(self.backends.statuses()).collect();
        sources.sort_by(|a, b| a.source.cmp(&b.source));
        ControlStatus {
            version: self.version,
            loaded_at: self.loaded_at,
            failed_reloads: self.failed_reloads,
            last_error: self.last_error.clone(),
            registrations: self.registrations.len(),
            sources,
        }
    }
}

impl Findings for ControlState {
    fn found(&self, address: &Discovery, model: &str) -> Vec<FoundEndpoint> {
        if let Discovery::Join = address {
            return self.registrations.of(model, &self.fleet);
        }
        let source = DiscoverySource::of(address, &self.fleet);
        let state = source.and_then(|source| self.sources.get(&source));
        state.map_or_else(Vec::new, |state| state.found.clone())
    }

    fn reported_permits(&self, endpoint: &EndpointKey) -> Option<u32> {
        self.reported_permits.get(endpoint).copied()
    }
}

/// The sources of a configuration: those of its endpoints and of the routers of other sites.
fn sources_of(fleet: &Fleet) -> Vec<DiscoverySource> {
    let endpoints = fleet.models().iter().flat_map(|model| &model.endpoints);
    let endpoints = endpoints.map(|endpoint| endpoint.address.clone());
    let sites = fleet.sites.iter().filter_map(|site| site.dns.clone());
    endpoints
        .chain(sites.map(Discovery::Dns))
        .filter_map(|address| DiscoverySource::of(&address, fleet))
        .collect()
}
