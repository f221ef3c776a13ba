//! [`TrainedCatalog`]: the trained versions of a cluster. Any API process creates and removes them, the store
//! keeps them, every API process serves them, and the directors of their source run them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::leases::JobRef;
use tidegate_core::store::{JobFilter, StoreError};
use tidegate_core::trained_version::TrainedVersion;
use tidegate_core::{Status, chain};

use super::Cluster;
use super::registered_model::RegisteredModel;
use crate::models::trained::{
    SourceChanges, TrainedServing, TrainedUpdater, TrainedVersions, Training, VersionError,
    VersionMaker,
};
use crate::models::{ModelRegistry, ServedVersion};
use crate::snapshot::TerminalState;

/// How often the versions are read: another process may have changed them.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Weights without a version are removed when they are this old.
const UNUSED_WEIGHTS_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many jobs are read at a time. A job that is not found ends when a director asks for its lease.
const BATCH: usize = 1000;

/// Why a job failed whose version was removed.
pub(super) const VERSION_REMOVED: &str =
    "the trained version that the job is for was removed before the job started";

/// The trained versions of a cluster.
pub struct TrainedCatalog {
    models: ModelRegistry,
    cluster: Cluster,
    updater: TrainedUpdater,
    serving: RegisteredServing,
}

impl TrainedCatalog {
    /// Serves the stored versions in `models`.
    pub fn new(models: ModelRegistry, cluster: Cluster, stored: Arc<TrainedVersions>) -> Self {
        let updater = TrainedUpdater::new(models.clone(), stored, SourceChanges::Shared);
        Self {
            serving: RegisteredServing {
                models: models.clone(),
                cluster: cluster.clone(),
                moved: Mutex::default(),
            },
            models,
            cluster,
            updater,
        }
    }

    /// Reads the versions. Called once, after the registered models are read.
    pub async fn load(&self) -> Result<(), StoreError> {
        let stored = self.updater.stored();
        stored.remove_unused_weights(UNUSED_WEIGHTS_AGE).await?;
        self.updater.load(&self.serving).await
    }

    /// Keeps the versions up to date, forever.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.refresh().await {
                tracing::warn!(error = %chain(&error), "failed to read the trained versions, retrying");
            }
            if let Err(error) = self.queue_moved().await {
                tracing::warn!(error = %chain(&error), "failed to look for jobs of trained versions, retrying");
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }

    /// Ends the jobs of a removed version that no director has.
    async fn end_waiting(&self, removed: &TrainedVersion) -> Result<(), StoreError> {
        let lookup = self.models.lookup();
        let store = lookup.store().expect("a cluster has a store");
        for job in self.open_jobs(removed).await? {
            let is_held = self.cluster.leases.holder_of(&job).await?.is_some();
            let record = store.get(&job.account, &job.id).await?;
            if let Some(record) = record.filter(|record| !is_held && !record.status.is_terminal()) {
                let terminal = TerminalState::Failed(VERSION_REMOVED.to_owned());
                lookup
                    .end_in_cluster(&self.cluster, record, terminal)
                    .await?;
            }
        }
        Ok(())
    }

    /// Puts the waiting jobs of versions that run other code now into the queue of that code.
    async fn queue_moved(&self) -> Result<(), StoreError> {
        let moved = std::mem::take(&mut *self.serving.moved());
        for trained in &moved {
            let open = self.open_jobs(trained).await;
            if open.as_ref().is_ok_and(Vec::is_empty) {
                continue;
            }
            let queued = match open {
                Ok(_) => self.queue_all_again().await,
                Err(error) => Err(error),
            };
            if !matches!(queued, Ok(true)) {
                self.serving.moved().extend(moved);
            }
            // This covers the jobs of all versions.
            return queued.map(|_| ());
        }
        Ok(())
    }

    /// Lets the reconciliation put all waiting jobs into their queues. Returns whether it will.
    async fn queue_all_again(&self) -> Result<bool, StoreError> {
        match self.models.queue().epoch().await {
            Ok(epoch) => self.cluster.leases.mark_all_unqueued(&epoch).await,
            Err(error) => {
                tracing::debug!(%error, "failed to read the epoch of the queue, retrying later");
                Ok(false)
            }
        }
    }

    /// The open jobs of a version, by any of its ids.
    async fn open_jobs(&self, trained: &TrainedVersion) -> Result<Vec<JobRef>, StoreError> {
        let store = self.models.lookup().store().expect("a cluster has a store");
        let filter = JobFilter {
            model: Some(trained.model.clone()),
            statuses: vec![Status::Queued, Status::Starting, Status::Processing],
            limit: BATCH,
            ..JobFilter::default()
        };
        let open = store.recent(filter).await?.into_iter();
        let own = open.filter(|job| trained.has_or_had_id(&job.target.version));
        let job_ref = own.map(|job| JobRef {
            account: job.account,
            id: job.id,
        });
        Ok(job_ref.collect())
    }
}

#[async_trait]
impl VersionMaker for TrainedCatalog {
    async fn make(&self, training: Training<'_>) -> Result<Option<TrainedVersion>, VersionError> {
        // Another process may have removed the version that was trained.
        self.refresh().await?;
        self.updater.make(training, &self.serving).await
    }

    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        self.updater.remove(trained).await?;
        // The version is removed, so an error only delays the end of its jobs.
        if let Err(error) = self.end_waiting(trained).await {
            tracing::warn!(version = trained.full_name(), error = %chain(&error), "failed to end the jobs of a removed version, they end later");
        }
        Ok(())
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        let removed = self.updater.refresh(&self.serving).await?;
        for trained in &removed {
            // The process that removed it may have been killed.
            self.end_waiting(trained).await?;
        }
        Ok(())
    }
}

/// Serves trained versions like registered models: directors run their jobs.
struct RegisteredServing {
    models: ModelRegistry,
    cluster: Cluster,
    /// The versions whose waiting jobs may be in another queue.
    moved: Mutex<Vec<TrainedVersion>>,
}

impl RegisteredServing {
    fn moved(&self) -> std::sync::MutexGuard<'_, Vec<TrainedVersion>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TrainedServing for RegisteredServing {
    async fn prepare(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> Result<ServedVersion, String> {
        let schema = source.executor().description();
        let schema = schema.ok_or("the schema of its source is not known")?;
        let executor = Arc::new(RegisteredModel::new(Bytes::clone(&schema)));
        let jobs = self.models.service_of_trained(trained, executor);
        let queues = &self.cluster.queues;
        if queues.add_trained(trained.ids(), source.jobs.target()) {
            self.moved().push(trained.clone());
        }
        Ok(ServedVersion {
            jobs,
            created_at: trained.created_at,
            description: None,
            folder: PathBuf::new(),
            is_handler: false,
        })
    }
}
