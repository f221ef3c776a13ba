//! The routing table: which endpoints and which queue each model has, and how a new configuration is put
//! into force.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::accounts::AccountLimits;
use crate::endpoint::{EndpointKey, LiveEndpoint, ResolvedEndpoint, WaitingGroup};
use crate::fleet::{Fleet, FleetModel};
use crate::group::{EndpointGroup, GroupMember};
use crate::queue::WaitingMemory;

/// A configuration with the groups of its models: an immutable snapshot.
#[derive(Debug, Default)]
pub struct RoutingTable {
    fleet: Arc<Fleet>,
    /// In the order of the models of the fleet.
    groups: Vec<Arc<EndpointGroup>>,
}

impl RoutingTable {
    /// The configuration.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The model with this name or alias, and its group.
    pub fn route(&self, name: &str) -> Option<(&Arc<FleetModel>, &Arc<EndpointGroup>)> {
        let index = self.fleet.index_of(name)?;
        Some((&self.fleet.models()[index], &self.groups[index]))
    }

    /// The groups of all models, in the order of the configuration.
    pub fn groups(&self) -> &[Arc<EndpointGroup>] {
        &self.groups
    }
}

/// Owns the live state of all endpoints and models, and the routing table in force.
pub struct FleetRegistry {
    table: ArcSwap<RoutingTable>,
    accounts: AccountLimits,
    memory: Arc<WaitingMemory>,
    live: Mutex<LiveState>,
    /// Notified when an endpoint has a new time at which its state changes by itself.
    pub(crate) timers: Arc<Notify>,
}

#[derive(Default)]
struct LiveState {
    /// All endpoints of the table, and those with permits that are still in use.
    endpoints: HashMap<EndpointKey, Arc<LiveEndpoint>>,
    groups: HashMap<String, Arc<EndpointGroup>>,
}

impl Default for FleetRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl FleetRegistry {
    /// A registry without models.
    pub fn new() -> Self {
        Self {
            table: ArcSwap::default(),
            accounts: AccountLimits::default(),
            memory: Arc::default(),
            live: Mutex::default(),
            timers: Arc::default(),
        }
    }

    /// The table in force. A request keeps the one that it started with.
    pub fn table(&self) -> Arc<RoutingTable> {
        self.table.load_full()
    }

    /// The limits of the accounts.
    pub fn accounts(&self) -> &AccountLimits {
        &self.accounts
    }

    /// The bytes that the bodies of waiting requests occupy.
    pub fn waiting_memory(&self) -> usize {
        self.memory.used()
    }

    /// The endpoint with this key, of the table in force or with permits that are still in use.
    pub fn endpoint(&self, key: &EndpointKey) -> Option<Arc<LiveEndpoint>> {
        self.lock().endpoints.get(key).cloned()
    }

    /// All endpoints.
    pub fn endpoints(&self) -> Vec<Arc<LiveEndpoint>> {
        self.lock().endpoints.values().cloned().collect()
    }

    /// Puts a configuration into force, with the endpoints of each model by its name. Endpoints and models
    /// that stay keep their permits, health and waiters; waiters that no longer fit are refused.
    pub fn apply(&self, fleet: Arc<Fleet>, endpoints: &HashMap<String, Vec<ResolvedEndpoint>>) {
        let mut live = self.lock();
        self.memory.set_limit(fleet.limits.waiting_memory);
        self.accounts.apply(&fleet.accounts);
        let resolved = |model: &FleetModel| {
            let endpoints = endpoints.get(&model.name);
            endpoints.map_or_else(Default::default, Vec::as_slice)
        };
        live.set_endpoints(
            fleet.models().iter().flat_map(|m| resolved(m)),
            &self.timers,
        );
        let removed = live.set_groups(&fleet, &self.memory);
        live.connect(&fleet, resolved);
        let groups = fleet.models().iter().map(|m| live.groups[&m.name].clone());
        let table = RoutingTable {
            groups: groups.collect(),
            fleet: fleet.clone(),
        };
        self.table.store(Arc::new(table));
        for (name, group) in &live.groups {
            let model = fleet.model(name).expect("there is a group for each model");
            let members = live.members(resolved(model));
            group.reconfigure(&model.queue, members);
        }
        for group in removed {
            group.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveState {
    /// Creates the endpoints that are new, sets the limits, and forgets endpoints that are not used.
    fn set_endpoints<'a>(
        &mut self,
        resolved: impl Iterator<Item = &'a ResolvedEndpoint>,
        timers: &Arc<Notify>,
    ) {
        let mut limits = HashMap::<&EndpointKey, u32>::new();
        for endpoint in resolved {
            let limit = limits.entry(&endpoint.key).or_default();
            *limit = endpoint.permits.max(*limit);
        }
        self.endpoints
            .retain(|key, endpoint| limits.contains_key(key) || endpoint.used() > 0);
        for (key, limit) in limits {
            match self.endpoints.get(key) {
                Some(endpoint) if endpoint.limit() != limit => endpoint.set_limit(limit),
                Some(_) => {}
                None => {
                    let endpoint = LiveEndpoint::new(key.clone(), limit, timers.clone());
                    self.endpoints.insert(key.clone(), Arc::new(endpoint));
                }
            }
        }
    }

    /// Creates the groups that are new and returns those of models that are gone.
    fn set_groups(
        &mut self,
        fleet: &Fleet,
        memory: &Arc<WaitingMemory>,
    ) -> Vec<Arc<EndpointGroup>> {
        let removed = self
            .groups
            .extract_if(|name, _| fleet.models().iter().all(|model| model.name != *name));
        let removed = removed.map(|(_, group)| group).collect();
        for model in fleet.models() {
            self.groups.entry(model.name.clone()).or_insert_with(|| {
                let group = EndpointGroup::new(&model.name, model.queue.clone(), memory.clone());
                Arc::new(group)
            });
        }
        removed
    }

    /// Sets the models that each endpoint serves.
    fn connect<'a>(&self, fleet: &Fleet, resolved: impl Fn(&FleetModel) -> &'a [ResolvedEndpoint]) {
        let mut groups = HashMap::<&EndpointKey, Vec<WaitingGroup>>::new();
        for model in fleet.models() {
            for endpoint in resolved(model) {
                let handle = self.groups[&model.name].handle();
                groups.entry(&endpoint.key).or_default().push(handle);
            }
        }
        for (key, endpoint) in &self.endpoints {
            endpoint.set_groups(groups.remove(key).unwrap_or_default());
        }
    }

    /// Endpoints that a model lists twice are one member.
    fn members(&self, resolved: &[ResolvedEndpoint]) -> Vec<Arc<GroupMember>> {
        let mut members = Vec::<Arc<GroupMember>>::new();
        for endpoint in resolved {
            if members.iter().all(|m| m.live().key() != &endpoint.key) {
                let live = self.endpoints[&endpoint.key].clone();
                members.push(Arc::new(GroupMember::new(live, endpoint)));
            }
        }
        members
    }
}
