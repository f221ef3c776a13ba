//! An endpoint that this process owns: its jobs wait and run here, as in a server of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::chain;
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, Store};
use tidegate_http::runpod::platform::{self, Endpoint, WorkerKeys, cluster::OwnedRoutes};
use tidegate_queue::MemoryQueue;
use tidegate_queue::upkeep::{self, UpkeepConfig};
use tidegate_service::{JobService, ModelRegistry, NoExecutor};
use tidegate_store::{OwnedEndpointStore, PostgresStore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::EndpointArgs;
use crate::endpoint_setup::EndpointSetup;

/// How long changes that are in progress may take when the endpoint is given up.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// The memory for the inputs of waiting jobs of one endpoint; above it they are read again when they start.
const WAITING_MEMORY: usize = 64 * 1024 * 1024;

/// What the endpoints of a process have in common.
pub(super) struct OwnedConfig {
    pub(super) store: Arc<PostgresStore>,
    /// The job service of the process, with its settings and webhooks.
    pub(super) lookup: JobService,
    pub(super) args: EndpointArgs,
    pub(super) worker_keys: Option<WorkerKeys>,
    /// The URL of the cluster for workers.
    pub(super) base_url: String,
    pub(super) max_body: usize,
}

/// An endpoint that this process owns.
pub(super) struct OwnedEndpoint {
    name: String,
    pub(super) term: u64,
    pub(super) routes: Arc<OwnedRoutes>,
    pub(super) models: ModelRegistry,
    setup: EndpointSetup,
    store: Arc<PostgresStore>,
    /// Cancelled when this process does not own it any more.
    over: CancellationToken,
    /// The upkeep of its queue.
    tasks: TaskTracker,
}

impl OwnedEndpoint {
    /// Its job service and workers, if it has this name.
    pub(super) fn endpoint(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.setup.endpoints.get(name)
    }

    /// Takes over an endpoint, as a server resumes the jobs of its previous run.
    pub(super) async fn open(
        config: &OwnedConfig,
        name: &str,
        term: u64,
        valid_until: Instant,
    ) -> anyhow::Result<Self> {
        let model = Target::of_endpoint(name).model;
        let store = Arc::new(config.store.owned_endpoint(name, &model, term));
        let lookup = config.lookup.for_owned_endpoint(
            Arc::new(NoExecutor),
            store.clone() as Arc<dyn Store>,
            Arc::new(MemoryQueue::default()),
            WAITING_MEMORY,
        );
        let models = ModelRegistry::new(lookup);
        let documents = store.clone() as Arc<dyn Documents>;
        let setup = EndpointSetup::open_owned(&config.args, &models, documents, name).await?;
        let resumed = models
            .take_over()
            .await
            .context("failed to read the jobs of the endpoint")?;
        setup.resume(resumed).await?;
        tracing::info!(
            endpoint = name,
            term,
            resumed.queued,
            resumed.failed,
            resumed.is_loading,
            "this process owns the endpoint"
        );
        let routes = platform::owned_routes(
            setup.endpoints.clone(),
            setup.config_with(
                &config.args,
                config.worker_keys.clone(),
                config.base_url.clone(),
                config.max_body,
            ),
        );
        let over = CancellationToken::new();
        let (tasks, queue) = (TaskTracker::new(), models.queue());
        let upkeep = upkeep::run(queue, Arc::new(models.clone()), UpkeepConfig::default());
        tasks.spawn(over.clone().run_until_cancelled_owned(upkeep));
        tasks.spawn(end_with_term(store, over.clone()));
        Ok(Self {
            name: name.to_owned(),
            term,
            routes: Arc::new(OwnedRoutes::new(routes, valid_until, over.clone())),
            models,
            setup,
            store: Arc::clone(&config.store),
            over,
            tasks,
        })
    }

    /// Whether the store has refused a change because another process owns the endpoint.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Gives the endpoint up: the next owner continues with its jobs. `by` says why.
    pub(super) async fn leave(&self, by: Leaving) {
        // First: from here on no response of the endpoint is sent.
        self.over.cancel();
        self.setup.stop_handout().await;
        self.models.abandon(LEAVE_TIMEOUT).await;
        self.tasks.close();
        self.tasks.wait().await;
        tracing::info!(
            endpoint = self.name,
            term = self.term,
            ?by,
            "this process no longer owns the endpoint"
        );
        if by == Leaving::Lost {
            return;
        }
        let release = async {
            self.setup.save().await;
            self.store.release_endpoint(&self.name, self.term).await
        };
        // A database that does not answer must not delay a shutdown.
        let reason = match tokio::time::timeout(LEAVE_TIMEOUT, release).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error).to_string(),
            Err(_) => format!("no answer within {LEAVE_TIMEOUT:?}"),
        };
        tracing::warn!(
            endpoint = self.name,
            reason,
            "failed to release the endpoint, another process takes it over when the claim expires"
        );
    }
}

/// Why a process gives an endpoint up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Another process has taken it over.
    Lost,
    /// It was removed, or the process shuts down.
    Released,
}

/// Ends the ownership when the store refuses a change.
async fn end_with_term(store: Arc<OwnedEndpointStore>, over: CancellationToken) {
    if over.run_until_cancelled(store.until_over()).await.is_some() {
        over.cancel();
    }
}
