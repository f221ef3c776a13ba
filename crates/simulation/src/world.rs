//! What all processes of a run share: the servers, the network, the faults, the checker.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::JobKind;
use tidegate_core::queue::Queue;
use tidegate_core::record::Target;
use tidegate_core::store::Store;
use tidegate_net::{Client, Config as NetConfig};
use tidegate_service::{
    Cluster, ClusterSettings, Config, Deps, Files, JobService, JobSettings, NoExecutor, OnLost,
    WebhookSecrets,
};
use tokio_util::task::TaskTracker;

use crate::api_network::ApiNetwork;
use crate::checker::Checker;
use crate::clock::SimulatedClock;
use crate::faults::Faults;
use crate::live::LiveServer;
use crate::queue::QueueServer;
use crate::random::SeededRandom;
use crate::receiver::renderer;
use crate::scenario::Scenario;
use crate::store::StoreServer;

/// The model that all directors run.
pub(crate) const MODEL: &str = "ann/simulated";

/// What all processes of a run share.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) clock: SimulatedClock,
    pub(crate) random: SeededRandom,
    pub(crate) faults: Arc<Faults>,
    pub(crate) checker: Arc<Checker>,
    pub(crate) store: Arc<StoreServer>,
    pub(crate) queue: Arc<QueueServer>,
    pub(crate) live: Arc<LiveServer>,
    pub(crate) network: Arc<ApiNetwork>,
    pub(crate) tasks: TaskTracker,
}

/// The version of the model.
pub(crate) fn target() -> Target {
    Target {
        model: MODEL.to_owned(),
        version: "5a".repeat(32),
        deployment: None,
    }
}

/// What a job service is made from.
pub(crate) struct ServiceParts {
    pub(crate) net: NetConfig,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) cluster: Option<Cluster>,
}

/// The service that looks up the jobs of a process.
pub(crate) fn lookup_service(scenario: &Scenario, parts: ServiceParts) -> JobService {
    let net = Arc::new(Client::new(parts.net));
    let deps = Deps {
        files: Files {
            net: Arc::clone(&net),
            upload_url: None,
            owner: None,
            file_store: None,
        },
        net,
        scratch: Arc::new(PathBuf::new),
        free_space: Arc::new(|| None),
        spill_above: usize::MAX,
        queue: parts.queue,
        store: parts.store,
        cluster: parts.cluster,
    };
    let config = Config {
        webhook_token: None,
        webhook_secrets: WebhookSecrets::default(),
        webhook_throttle: Duration::from_millis(500),
        webhook_retry_for: Duration::from_secs(24 * 60 * 60),
        waiting_memory: usize::MAX,
        jobs: JobSettings {
            stream_history: 16,
            keep_for: Duration::from_secs(120),
            keep_data_for: None,
            predictions_are: JobKind::Prediction,
            job_timeout: None,
            max_output: 1024 * 1024,
            on_lost: OnLost::Retry {
                attempts: scenario.max_attempts,
            },
            renderer: Arc::new(|_, _, _| renderer()),
        },
    };
    let nothing = Target {
        model: String::new(),
        version: String::new(),
        deployment: None,
    };
    JobService::new(Arc::new(NoExecutor), nothing, deps, config)
}

impl World {
    /// The intervals of the cluster: those of the program.
    pub(crate) fn settings(&self) -> ClusterSettings {
        ClusterSettings::default()
    }

    /// How far the clock of a machine is ahead, in milliseconds.
    pub(crate) fn skew(&self) -> i64 {
        let most = i64::try_from(self.scenario.clock_skew.as_millis()).unwrap_or_default();
        let span = usize::try_from(2 * most + 1).unwrap_or(1);
        i64::try_from(self.random.below(span)).unwrap_or_default() - most
    }
}
