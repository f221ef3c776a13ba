//! [`ClusterMonitor`]: how full the queues of a cluster are and what its directors do, for metrics.
//!
//! The state is read from Redis and PostgreSQL, at most once in [`MIN_AGE`] however many clients ask, and
//! never more often than a twentieth of the time allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::JobKind;
use tidegate_core::leases::ClusterCounts;
use tidegate_core::queue::{QueueName, QueueStatistics, QueueUsage};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Cluster, ClusterMetrics};
use crate::models::ModelRegistry;

/// How long a state is used at least.
const MIN_AGE: Duration = Duration::from_secs(2);
/// A state is used this many times as long as it took to read it.
const READ_SHARE: u32 = 20;
/// The longest time that reading takes.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    /// The queues of the models that are served, and all others in Redis. `None` if Redis did not answer.
    pub queues: Option<Vec<ModelQueueUsage>>,
    /// The number of dead letters.
    pub dead_letters: usize,
    /// What the store has counted. `None` if PostgreSQL did not answer.
    pub counts: Option<ClusterCounts>,
}

/// How full a queue is, and whose jobs it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelQueueUsage {
    /// `owner/name`; empty if no served version uses the queue.
    pub model: String,
    /// How full it is.
    pub usage: QueueUsage,
}

/// Reads the state of a cluster.
pub struct ClusterMonitor {
    models: ModelRegistry,
    cluster: Cluster,
    last: Mutex<Option<ReadState>>,
}

/// A state, and until when it is used.
struct ReadState {
    state: Arc<ClusterState>,
    until: Instant,
}

impl ClusterMonitor {
    /// Watches the queues of these models.
    pub fn new(models: ModelRegistry, cluster: Cluster) -> Self {
        Self {
            models,
            cluster,
            last: Mutex::default(),
        }
    }

    /// The counters of this process.
    pub fn metrics(&self) -> &ClusterMetrics {
        &self.cluster.metrics
    }

    /// The state of the cluster a few seconds ago, at most.
    pub async fn state(&self) -> Arc<ClusterState> {
        // Held while the state is read, so that concurrent callers read it once.
        let mut last = self.last.lock().await;
        if let Some(read) = &*last
            && Instant::now() < read.until
        {
            return Arc::clone(&read.state);
        }
        let began = Instant::now();
        let state = Arc::new(self.read().await);
        let age = (began.elapsed() * READ_SHARE).max(MIN_AGE);
        *last = Some(ReadState {
            state: Arc::clone(&state),
            until: Instant::now() + age,
        });
        state
    }

    async fn read(&self) -> ClusterState {
        let queue = self.models.queue();
        let (statistics, counts) = tokio::join!(
            tokio::time::timeout(READ_TIMEOUT, queue.statistics()),
            tokio::time::timeout(READ_TIMEOUT, self.cluster.leases.counts()),
        );
        let statistics = statistics.ok().and_then(Result::ok);
        ClusterState {
            dead_letters: statistics.as_ref().map_or(0, |all| all.dead_letters),
            queues: statistics.map(|statistics| self.by_model(statistics)),
            counts: counts.ok().and_then(Result::ok),
        }
    }

    /// The queues with their models. A model whose jobs never waited has an empty queue.
    fn by_model(&self, statistics: QueueStatistics) -> Vec<ModelQueueUsage> {
        let queues = &self.cluster.queues;
        let mut models: BTreeMap<QueueName, (String, bool)> = BTreeMap::new();
        for model in self.models.all() {
            let current = model.current();
            for version in model.versions() {
                let target = version.jobs.target();
                for kind in [JobKind::Prediction, JobKind::Training] {
                    let is_shown = version.id() == current.id() && kind == JobKind::Prediction;
                    let shown = (target.model.clone(), is_shown);
                    models.insert(queues.queue_of(kind, target), shown);
                    // The directors of a model run the jobs of the versions that were trained from it.
                    let trained = (target.model.clone(), false);
                    models.insert(QueueName::of_trained(kind, target), trained);
                }
            }
        }
        let mut found: Vec<ModelQueueUsage> = Vec::new();
        for usage in statistics.queues {
            let of_version = models.remove(&usage.name).map(|(model, _)| model);
            let model = of_version.or_else(|| queues.model_of(&usage.name));
            let model = model.unwrap_or_default();
            found.push(ModelQueueUsage { model, usage });
        }
        let unused = models.into_iter().filter(|(_, (_, is_shown))| *is_shown);
        found.extend(unused.map(|(name, (model, _))| ModelQueueUsage {
            model,
            usage: QueueUsage {
                name,
                depth: Default::default(),
                oldest_wait: None,
            },
        }));
        found
    }
}
