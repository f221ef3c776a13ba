//! The store and the queue for the batches of a router: `--data-dir`, `--postgres` and `--redis`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::store::Documents;
use tidegate_http::gateway::{BatchPorts, Gateway};
use tidegate_queue::upkeep::{self, UpkeepConfig};
use tidegate_service::ModelRegistry;
use tidegate_store::{PostgresOptions, PostgresStore};

use crate::cli::RouterArgs;
use crate::data_dir::DataDir;
use crate::job_lookup::{JobLookupConfig, WebhookConfig, job_lookup};
use crate::store_ports::DurableState;
use crate::{data_dir, postgres_setup, redis_queue, startup};

/// Memory for the requests that wait. Above it they wait in the store.
const WAITING_MEMORY: usize = 64 * 1024 * 1024;
/// The largest result of a queued request.
const MAX_OUTPUT: usize = 64 * 1024 * 1024;
/// The key of a default data directory, which a router does not have.
const NO_DEFAULT: &str = "router";

/// What the batches of a router are stored in.
pub(crate) struct BatchSetup {
    models: ModelRegistry,
    documents: Arc<dyn Documents>,
    postgres: Option<Arc<PostgresStore>>,
}

impl BatchSetup {
    /// Opens the store; `None` without `--data-dir` and `--postgres`.
    pub(crate) async fn open(args: &RouterArgs) -> anyhow::Result<Option<Self>> {
        let postgres = match postgres_setup::url(args.postgres.as_ref()) {
            Some(url) => {
                let store = postgres_setup::open(&url, &PostgresOptions::default()).await?;
                Some(Arc::new(store))
            }
            None => None,
        };
        let state = match (&postgres, &args.data_dir) {
            (Some(postgres), _) => Some(DurableState {
                name: postgres.location().to_owned(),
                ports: Arc::clone(postgres).into(),
                files: None,
            }),
            (None, given @ Some(DataDir::At(_))) => {
                data_dir::open(given.as_ref(), Path::new(NO_DEFAULT), args.listen.port).await?
            }
            (None, Some(DataDir::None) | None) => None,
        };
        let upkeep = UpkeepConfig::default();
        let queue = redis_queue::open(&args.redis, upkeep.max_deliveries, state.as_ref()).await?;
        let Some(state) = state else {
            return Ok(None);
        };
        let lookup = job_lookup(JobLookupConfig {
            queue,
            store: Some(state.ports.store),
            webhooks: WebhookConfig::default(),
            waiting_memory: WAITING_MEMORY,
            keep_for: args.keep_for,
            max_output: MAX_OUTPUT,
        })?;
        Ok(Some(Self {
            models: ModelRegistry::new(lookup),
            documents: state.ports.documents,
            postgres,
        }))
    }

    /// What the gateway needs.
    pub(crate) fn ports(&self) -> BatchPorts {
        BatchPorts {
            models: self.models.clone(),
            documents: Arc::clone(&self.documents),
        }
    }

    /// Resumes the requests of the previous run.
    pub(crate) async fn resume(&self, gateway: &Gateway) -> anyhow::Result<()> {
        gateway
            .open_batch_models()
            .await
            .context("failed to read the batches of the previous run")?;
        startup::resume_jobs(&self.models).await?;
        Ok(())
    }

    /// Keeps the queue consistent. Ends when another router has taken over the database.
    pub(crate) async fn run(&self) {
        let upkeep = upkeep::run(
            self.models.queue(),
            Arc::new(self.models.clone()),
            UpkeepConfig::default(),
        );
        match &self.postgres {
            Some(postgres) => tokio::select! {
                () = upkeep => {}
                () = postgres.until_replaced() => {}
            },
            None => upkeep.await,
        }
    }

    /// Starts no more queued requests, and waits for those that run. The next run has the rest.
    pub(crate) async fn close(&self, timeout: Duration) {
        self.models.close(timeout).await;
        self.models.stop().await;
    }
}
