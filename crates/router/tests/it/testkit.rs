//! A registry with models and endpoints for tests.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use tidegate_core::Account;
use tidegate_router::fleet::{
    Algorithm, BackendKind, BackendUrl, Discovery, EndpointConfig, Fleet, FleetModel, QueueConfig,
};
use tidegate_router::{
    AdmitOutcome, Ask, EndpointGroup, EndpointKey, EndpointPermit, FleetRegistry, Full,
    LiveEndpoint, PermitWaiter, ResolvedEndpoint,
};

/// A fleet that a test changes and applies.
#[derive(Default)]
pub(crate) struct TestFleet {
    pub(crate) registry: Arc<FleetRegistry>,
    pub(crate) fleet: Fleet,
    models: Vec<(FleetModel, Vec<ResolvedEndpoint>)>,
}

impl TestFleet {
    /// A fleet with one model `m`, whose endpoints `0`, `1`, … have these permits.
    pub(crate) fn with_model(queue: QueueConfig, permits: &[u32]) -> Self {
        let mut fleet = Self::default();
        let endpoints: Vec<_> = permits
            .iter()
            .enumerate()
            .map(|(n, permits)| endpoint(n, *permits))
            .collect();
        fleet.set_model("m", queue, &endpoints);
        fleet.apply();
        fleet
    }

    /// Adds or replaces a model.
    pub(crate) fn set_model(
        &mut self,
        name: &str,
        queue: QueueConfig,
        endpoints: &[ResolvedEndpoint],
    ) {
        self.models.retain(|(model, _)| model.name != name);
        self.models.push((model(name, queue), endpoints.to_vec()));
    }

    pub(crate) fn remove_model(&mut self, name: &str) {
        self.models.retain(|(model, _)| model.name != name);
    }

    pub(crate) fn apply(&self) {
        let models = self.models.iter().map(|(model, _)| model.clone());
        let fleet = self.fleet.clone().with_models(models.collect());
        let endpoints: HashMap<_, _> = self
            .models
            .iter()
            .map(|(model, endpoints)| (model.name.clone(), endpoints.clone()))
            .collect();
        self.registry
            .apply(Arc::new(fleet.expect("distinct names")), &endpoints);
    }

    pub(crate) fn group(&self, model: &str) -> Arc<EndpointGroup> {
        let table = self.registry.table();
        table.route(model).expect("a model of the fleet").1.clone()
    }

    pub(crate) fn endpoint(&self, n: usize) -> Arc<LiveEndpoint> {
        self.registry
            .endpoint(&key(n))
            .expect("an endpoint of the fleet")
    }
}

pub(crate) fn key(n: usize) -> EndpointKey {
    EndpointKey::of(&url(n))
}

fn url(n: usize) -> BackendUrl {
    BackendUrl::parse(&format!("http://backend-{n}:8000")).expect("a URL")
}

pub(crate) fn endpoint(n: usize, permits: u32) -> ResolvedEndpoint {
    let config = EndpointConfig {
        permits: Some(permits),
        ..EndpointConfig::new(Discovery::Url(url(n)), BackendKind::OpenAi)
    };
    ResolvedEndpoint::new(url(n), Arc::new(config))
}

fn model(name: &str, queue: QueueConfig) -> FleetModel {
    FleetModel {
        queue,
        ..FleetModel::new(name)
    }
}

/// A queue with this number of places for each permit.
pub(crate) fn queue(algorithm: Algorithm, capacity: u32) -> QueueConfig {
    QueueConfig {
        algorithm,
        capacity,
        ..QueueConfig::default()
    }
}

pub(crate) fn ask(account: &str) -> Ask {
    Ask::new(Account::parse(account).expect("a name"))
}

pub(crate) fn leased(outcome: AdmitOutcome) -> EndpointPermit {
    match outcome {
        AdmitOutcome::Leased(permit) => permit,
        other => panic!("not leased: {other:?}"),
    }
}

pub(crate) fn queued(outcome: AdmitOutcome) -> PermitWaiter {
    match outcome {
        AdmitOutcome::Queued(waiter) => waiter,
        other => panic!("not queued: {other:?}"),
    }
}

pub(crate) fn full(outcome: AdmitOutcome) -> Full {
    match outcome {
        AdmitOutcome::Full(full) => full,
        other => panic!("not refused: {other:?}"),
    }
}

/// The answer of a waiter, if it has one.
pub(crate) fn answer(waiter: &mut PermitWaiter) -> Option<Result<EndpointPermit, Full>> {
    waiter.now_or_never()
}

/// Lets each waiter run when its permit comes, gives the permit back, and returns their names in the
/// order in which they were served. One permit must be in use, the given one.
pub(crate) fn order_of_service(
    permit: EndpointPermit,
    mut waiters: Vec<(&str, PermitWaiter)>,
) -> String {
    let mut order = Vec::new();
    let mut running = Some(permit);
    while let Some(permit) = running.take() {
        drop(permit);
        for index in 0..waiters.len() {
            if let Some(answer) = answer(&mut waiters[index].1) {
                order.push(waiters.remove(index).0);
                running = Some(answer.expect("a permit"));
                break;
            }
        }
    }
    assert!(waiters.is_empty(), "{} are left", waiters.len());
    order.join(" ")
}
