//! The sections of the dashboard: aggregates of the whole server, and what one account sees of them.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::Account;
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::record::Target;
use tidegate_router::EndpointKey;
use tidegate_router::fleet::{Discovery, FleetModel};
use tidegate_router::statistics::{EndpointStatistics, ModelStatistics};
use tidegate_service::{ClusterState, QueueCounts, QueueStatus};

use super::history::{HistoryDocument, Overview};
use super::load::one_per_model;
use super::wire::{ModelKind, ModelSummary};
use super::{ListedEndpoint, UiState};
use crate::admin::{ChildDocument, QueueDocument};
use crate::gpus::{self, GpuDocument};

/// What the dashboard shows, at one time.
pub(super) struct Sections {
    pub(super) at: Timestamp,
    pub(super) overview: Overview,
    pub(super) history: HistoryDocument,
    pub(super) models: Vec<ModelActivity>,
    pub(super) queues: Vec<QueueShares>,
    pub(super) children: Vec<ChildDocument>,
    pub(super) endpoints: Vec<EndpointLoadDocument>,
    pub(super) directors: Option<Vec<DirectorDocument>>,
    pub(super) replicas: Option<Vec<ReplicaDocument>>,
    pub(super) router: Option<RouterDocument>,
    /// Empty on a machine without GPUs.
    pub(super) gpus: Vec<GpuDocument>,
}

/// A model with its slots and jobs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ModelActivity {
    #[serde(flatten)]
    summary: ModelSummary,
    slots: usize,
    slots_free: usize,
    waiting: usize,
    running: usize,
}

/// The queue of a model, with the share of each account.
pub(super) struct QueueShares {
    target: Target,
    status: QueueStatus,
}

/// An endpoint of Runpod's platform API.
#[derive(Debug, Serialize)]
pub(super) struct EndpointLoadDocument {
    name: String,
    waiting: usize,
    running: usize,
    workers: Vec<WorkerDocument>,
}

/// A Runpod worker.
#[derive(Debug, Serialize)]
struct WorkerDocument {
    id: String,
    state: &'static str,
    jobs: usize,
    last_seen_s: f64,
}

/// A director that sends heartbeats to this process.
#[derive(Debug, Serialize)]
pub(super) struct DirectorDocument {
    id: String,
    models: Vec<String>,
    slots: u32,
    running: usize,
    draining: bool,
    last_seen_s: f64,
}

/// An API process of the cluster.
#[derive(Debug, Serialize)]
pub(super) struct ReplicaDocument {
    id: String,
    last_seen_s: f64,
}

/// The models of a router with their backends.
#[derive(Debug, Serialize)]
pub(super) struct RouterDocument {
    models: Vec<RoutedModelDocument>,
}

#[derive(Debug, Serialize)]
struct RoutedModelDocument {
    name: String,
    waiting: usize,
    endpoints: Vec<BackendDocument>,
}

#[derive(Debug, Serialize)]
struct BackendDocument {
    url: String,
    kind: &'static str,
    health: &'static str,
    permits: u32,
    used: u32,
    latency_ms: Option<f64>,
    draining: bool,
}

impl UiState {
    /// Reads all sections. Takes the same time however many jobs wait.
    pub(super) fn read_sections(&self, cluster: Option<&ClusterState>) -> Sections {
        let sample = self.load_sample(cluster);
        let services = self.job_services();
        let gpus = gpus::of_services(&self.sources.gpus, &services).into_iter();
        let pools: Vec<(Target, PoolStatus)> = services
            .iter()
            .map(|jobs| (jobs.target().clone(), jobs.pool_status()))
            .collect();
        let mut queues: Vec<QueueShares> = one_per_model(services)
            .iter()
            .map(|jobs| QueueShares {
                target: jobs.target().clone(),
                status: jobs.queue(),
            })
            .filter(|queue| !queue.target.model.is_empty())
            .collect();
        if let Some(cluster) = cluster {
            count_cluster_queues(&mut queues, cluster);
        }
        let oldest = queues
            .iter()
            .filter_map(|queue| queue.status.total.oldest_waiting_since);
        let oldest_wait_s = oldest
            .min()
            .map(|oldest| super::wire::seconds(oldest, sample.at));
        let (mut overview, history) = {
            let history = self.lock_history();
            (history.overview(&sample), history.document())
        };
        overview.oldest_wait_s = oldest_wait_s;
        Sections {
            at: sample.at,
            overview,
            history,
            models: self.model_loads(&pools, &queues),
            queues,
            children: children(pools),
            endpoints: (self.sources.endpoints)()
                .iter()
                .map(endpoint_load)
                .collect(),
            directors: self.directors(),
            replicas: self.replicas(sample.at),
            router: self.router_document(),
            gpus: gpus.map(GpuDocument::from).collect(),
        }
    }

    fn model_loads(
        &self,
        pools: &[(Target, PoolStatus)],
        queues: &[QueueShares],
    ) -> Vec<ModelActivity> {
        let routed = self.routed_models();
        let summaries = self.model_summaries().into_iter();
        let load = |summary: ModelSummary| {
            let statistics = routed.iter().find(|(model, _)| model.name == summary.name);
            if let Some((_, statistics)) = statistics {
                return routed_load(summary, statistics);
            }
            let name = match summary.kind {
                ModelKind::Endpoint => Target::of_endpoint(&summary.name).model,
                ModelKind::Model | ModelKind::Trained | ModelKind::Routed => summary.name.clone(),
            };
            let queue = queues.iter().find(|queue| queue.target.model == name);
            let counts = queue.map(|queue| queue.status.total).unwrap_or_default();
            let mut pool = PoolStatus::default();
            for (_, other) in pools.iter().filter(|(target, _)| target.model == name) {
                pool.merge(other.clone());
            }
            ModelActivity {
                summary,
                slots: pool.slots,
                slots_free: pool.free,
                waiting: counts.waiting,
                running: counts.running,
            }
        };
        summaries.map(load).collect()
    }

    fn directors(&self) -> Option<Vec<DirectorDocument>> {
        let directors = self.sources.directors.as_ref()?.seen();
        let document = |seen: tidegate_service::SeenDirector| DirectorDocument {
            id: seen.name,
            models: seen.models,
            slots: seen.slots,
            running: seen.running,
            draining: seen.is_draining,
            last_seen_s: tenths(seen.last_seen.as_secs_f64()),
        };
        Some(directors.into_iter().map(document).collect())
    }

    fn replicas(&self, now: Timestamp) -> Option<Vec<ReplicaDocument>> {
        let replicas = self.sources.replicas.as_ref()?.seen().into_iter();
        let document = |seen: tidegate_service::SeenReplica| ReplicaDocument {
            id: seen.name,
            last_seen_s: tenths(super::wire::seconds(seen.last_seen, now)),
        };
        Some(replicas.map(document).collect())
    }

    fn router_document(&self) -> Option<RouterDocument> {
        self.sources.router.as_ref()?;
        let models = self.routed_models().into_iter();
        let models = models.map(|(model, statistics)| RoutedModelDocument {
            name: model.name.clone(),
            waiting: statistics.queue_size,
            endpoints: statistics
                .endpoints
                .iter()
                .map(|endpoint| backend(&model, endpoint))
                .collect(),
        });
        Some(RouterDocument {
            models: models.collect(),
        })
    }
}

impl Sections {
    /// The queues with the shares of all accounts, or only with that of one account.
    pub(super) fn queues_of(&self, account: Option<&Account>) -> Vec<QueueDocument<'_>> {
        let queues = self.queues.iter();
        queues
            .map(|queue| {
                let status = match account {
                    None => queue.status.clone(),
                    Some(account) => share_of(&queue.status, account),
                };
                QueueDocument::of(&queue.target, &status, self.at)
            })
            .collect()
    }

    /// The models, with the jobs of one account only.
    pub(super) fn models_of(&self, account: &Account) -> Vec<ModelActivity> {
        let own = |load: &ModelActivity| {
            let queue = self.queues.iter().find(|queue| queue.is_of(&load.summary));
            let counts = queue.and_then(|queue| queue.status.accounts.get(account));
            let counts = counts.copied().unwrap_or_default();
            ModelActivity {
                waiting: counts.waiting,
                running: counts.running,
                ..load.clone()
            }
        };
        let visible = self.models.iter();
        let visible = visible.filter(|load| load.summary.is_visible_to(account));
        visible.map(own).collect()
    }
}

impl QueueShares {
    fn is_of(&self, model: &ModelSummary) -> bool {
        match model.kind {
            ModelKind::Endpoint => self.target.model == Target::of_endpoint(&model.name).model,
            ModelKind::Model | ModelKind::Trained | ModelKind::Routed => {
                self.target.model == model.name
            }
        }
    }
}

/// The part of a queue that one account may see.
fn share_of(status: &QueueStatus, account: &Account) -> QueueStatus {
    let own = status.accounts.get(account).copied();
    QueueStatus {
        total: own.unwrap_or_default(),
        accounts: own.map(|own| (account.clone(), own)).into_iter().collect(),
    }
}

/// The jobs of a cluster wait in queues that all its processes share, and directors run them.
fn count_cluster_queues(queues: &mut [QueueShares], cluster: &ClusterState) {
    let now = Timestamp::now();
    // A model has several queues: of predictions, of trainings, of deployments.
    let mut counted = HashSet::new();
    for usage in cluster.queues.iter().flatten() {
        let queue = queues
            .iter_mut()
            .find(|queue| queue.target.model == usage.model);
        let Some(queue) = queue.filter(|queue| !queue.target.is_endpoint()) else {
            continue;
        };
        let oldest = usage
            .usage
            .oldest_wait
            .and_then(|wait| now.checked_sub(wait).ok());
        let total = &mut queue.status.total;
        if counted.insert(&usage.model) {
            // What this process knows is a part of it.
            *total = QueueCounts::default();
        }
        total.waiting += usage.usage.depth.waiting;
        total.running += usage.usage.depth.claimed;
        let oldest = [total.oldest_waiting_since, oldest].into_iter().flatten();
        total.oldest_waiting_since = oldest.min();
    }
}

fn children(pools: Vec<(Target, PoolStatus)>) -> Vec<ChildDocument> {
    let each = |(target, pool): (Target, PoolStatus)| ChildDocument::all(&target.model, pool);
    pools.into_iter().flat_map(each).collect()
}

fn routed_load(summary: ModelSummary, statistics: &ModelStatistics) -> ModelActivity {
    let slots = statistics.total_permits as usize;
    ModelActivity {
        summary,
        slots,
        slots_free: slots.saturating_sub(statistics.used_permits),
        waiting: statistics.queue_size,
        running: statistics.used_permits,
    }
}

fn endpoint_load(listed: &ListedEndpoint) -> EndpointLoadDocument {
    let Some(endpoint) = &listed.endpoint else {
        return EndpointLoadDocument {
            name: listed.name.clone(),
            waiting: 0,
            running: 0,
            workers: Vec::new(),
        };
    };
    let load = endpoint.load();
    let workers = endpoint.remote.workers().into_iter();
    EndpointLoadDocument {
        name: listed.name.clone(),
        waiting: load.waiting,
        running: load.running,
        workers: workers
            .map(|worker| WorkerDocument {
                id: worker.id.to_string(),
                state: worker.state.name(),
                jobs: worker.jobs,
                last_seen_s: tenths(worker.last_seen.as_secs_f64()),
            })
            .collect(),
    }
}

fn backend(model: &Arc<FleetModel>, endpoint: &EndpointStatistics) -> BackendDocument {
    let is_at = |address: &Discovery| match address {
        Discovery::Url(url) => EndpointKey::of(url) == endpoint.key,
        Discovery::Dns(_) | Discovery::Srv(_) | Discovery::Consul(_) | Discovery::Join => false,
    };
    let configured = model.endpoints.iter();
    // An endpoint that was found by discovery has the kind of its source; sources of one model rarely differ.
    let config = configured.clone().find(|config| is_at(&config.address));
    let kind = config
        .or_else(|| model.endpoints.first())
        .map(|config| config.kind);
    BackendDocument {
        url: endpoint.key.to_string(),
        kind: kind.map_or("", |kind| kind.name()),
        health: endpoint.state.name(),
        permits: endpoint.limit,
        used: endpoint.used,
        latency_ms: endpoint
            .latency
            .map(|latency| tenths(latency.as_secs_f64() * 1000.0)),
        draining: endpoint.state.name() == "draining",
    }
}

/// A number with one decimal place: a section must not change because of less.
fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
