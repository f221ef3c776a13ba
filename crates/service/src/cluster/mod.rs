//! Jobs in a cluster: this process accepts and shows jobs, directors run them, and any number of such
//! processes share the store, the queue and the live events.
//!
//! A job that a client waits for has a handle in this process that follows it ([`followers`]). The store
//! decides who runs a job and how it ended; the live events only show what happens meanwhile.

mod accept;
pub(crate) mod begun_search;
mod call_batch;
pub(crate) mod cancel;
mod director_calls;
mod director_files;
mod director_sightings;
mod followed_jobs;
pub(crate) mod followers;
mod hints;
mod lease_tokens;
mod metrics;
mod model_catalog;
mod monitor;
mod queue_directory;
mod queued_marks;
mod reconcile;
mod registered_model;
mod replicas;
mod trained_catalog;
mod trained_jobs;
mod upkeep_handler;

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::leases::Leases;
use tidegate_core::live::Live;

pub use director_calls::{CallError, DirectorCalls, StreamUrls};
pub use director_files::{LinkedMessage, MessageLinks};
pub use director_sightings::{DirectorSightings, SeenDirector};
pub use lease_tokens::LeaseTokens;
pub use metrics::{ClusterMetrics, LeaseRequestResult};
pub use model_catalog::ModelCatalog;
pub use monitor::{ClusterMonitor, ClusterState, ModelQueueUsage};
pub use queue_directory::QueueDirectory;
pub use queued_marks::QueuedMarks;
pub use replicas::{ApiReplicas, SeenReplica};
pub use trained_catalog::TrainedCatalog;
pub use upkeep_handler::ClusterUpkeep;

/// What the processes of a cluster share besides store and queue.
#[derive(Clone)]
pub struct Cluster {
    /// Who runs which job.
    pub leases: Arc<dyn Leases>,
    /// What running jobs produce.
    pub live: Arc<dyn Live>,
    /// Where directors publish the output of jobs whose model can stream.
    pub publish_url: Arc<str>,
    /// Signs the tokens of leases.
    pub tokens: LeaseTokens,
    /// Jobs that this process has put into the queue.
    pub queued_marks: QueuedMarks,
    /// The intervals.
    pub settings: ClusterSettings,
    /// The queues of jobs and directors.
    pub queues: Arc<QueueDirectory>,
    /// What this process has done.
    pub metrics: Arc<ClusterMetrics>,
    /// The directors that call this process.
    pub directors: Arc<DirectorSightings>,
}

/// The intervals of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSettings {
    /// How long a lease lives without a heartbeat of its director.
    pub lease: Duration,
    /// The pause between two heartbeats of a director.
    pub heartbeat_interval: Duration,
    /// The pause between two searches for jobs that no director has.
    pub reconcile_interval: Duration,
}

impl ClusterSettings {
    /// How long the store has to answer a heartbeat. Directors wait for the reply for one interval, and for
    /// a second at least.
    fn heartbeat_limit(&self) -> Duration {
        let interval = self.heartbeat_interval;
        interval.clamp(Duration::from_secs(1), Duration::from_secs(10)) * 3 / 4
    }
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(5),
            reconcile_interval: Duration::from_secs(5),
        }
    }
}
