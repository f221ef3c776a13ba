//! Trained versions: the code of a model that is served from a folder, with other weights.
//!
//! They are always loaded on demand. When the model gets a new version, its trained versions follow;
//! when its folder is gone, they cannot run until it is back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::store::StoreError;
use tidegate_core::trained_version::TrainedVersion;
use tidegate_runtime::{LoadFn, LoadLimit, OnDemand, StartedModel, read_schema};
use tidegate_service::{
    ServedVersion, TrainedServing, Training, VersionError, VersionMaker, weights_path,
};

use super::loader::{LoadPolicy, ModelLoader};
use crate::model_factory::ModelStarter;
use crate::model_source::ModelSource;

/// The variable with the path of the weights.
const COG_WEIGHTS: &str = "COG_WEIGHTS";
/// When an idle trained version is unloaded, on a server that never unloads its models.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How long to wait for the schema of the source model.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(20);

impl ModelLoader {
    /// Adds the stored trained versions to the registry. Called once, after the models of the folders
    /// are loaded and before any training ends.
    pub(crate) async fn load_trained(&self) -> anyhow::Result<()> {
        let Some(trained) = &self.trained else {
            return Ok(());
        };
        let loaded = async {
            let stored = trained.stored();
            stored.remove_unused_weights(Duration::ZERO).await?;
            trained.load(self).await
        };
        loaded.await.context("failed to read the trained versions")
    }

    /// Moves the trained versions of a model to its current version.
    pub(super) async fn update_trained_versions(&self, source: &str) {
        if let Some(trained) = &self.trained {
            trained.follow(source, self).await;
        }
    }

    async fn prepare_trained(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> anyhow::Result<ServedVersion> {
        let model = ModelSource {
            dir: source.folder.clone(),
            ..self.factory.read(&source.folder)?
        };
        // The code is the same, so the schema is too.
        source.jobs.wait_for_description(SCHEMA_TIMEOUT).await;
        let schema = match source.jobs.description() {
            Some(schema) => Bytes::clone(&schema.source),
            None => read_schema(&self.factory.launch(&model)).await?,
        };
        let (idle_timeout, load_limit) = match &self.load_policy {
            LoadPolicy::Eager => (Some(IDLE_TIMEOUT), LoadLimit::new(None)),
            LoadPolicy::OnDemand {
                idle_timeout,
                load_limit,
            } => (*idle_timeout, load_limit.clone()),
        };
        let executor = Arc::new(OnDemand::new(
            schema,
            idle_timeout,
            load_limit,
            self.start_with_weights(trained, &model),
        ));
        let jobs = self.models.service_of_trained(trained, executor);
        Ok(ServedVersion {
            jobs: jobs.with_stream_history(self.factory.stream_history(&model)),
            created_at: trained.created_at,
            description: None,
            folder: source.folder.clone(),
            is_handler: false,
        })
    }

    /// Starts the model with a new copy of the weights each time, because it may write to them.
    fn start_with_weights(&self, trained: &TrainedVersion, model: &ModelSource) -> LoadFn {
        let (weights, trained) = (Arc::clone(&self.weights), trained.clone());
        let name = trained.full_name();
        let starter = self.factory.starter(model, &trained.model, trained.id());
        let observer = (self.observer_for)(&name, starter.children());
        Box::new(move || {
            let (weights, trained, starter, observer) = (
                Arc::clone(&weights),
                trained.clone(),
                starter.clone(),
                Arc::clone(&observer),
            );
            Box::pin(async move {
                let failed = |error: std::io::Error| {
                    format!(
                        "failed to create a folder for the weights of {}: {error}",
                        trained.full_name()
                    )
                };
                let workdir = starter.scratch().create_workdir().map_err(failed)?;
                let copied = weights.copy_weights(&trained, workdir.path()).await;
                copied.map_err(|error| {
                    format!(
                        "failed to copy the weights of {}: {error}",
                        trained.full_name()
                    )
                })?;
                starter.scratch().chown_workdir(&workdir).map_err(failed)?;
                let path = weights_path(&trained.weights, workdir.path());
                let starter: ModelStarter = starter.with_env(COG_WEIGHTS, path);
                Ok(StartedModel {
                    runtime: starter.start(observer),
                    workdir: Some(workdir),
                })
            })
        })
    }
}

#[async_trait]
impl TrainedServing for ModelLoader {
    async fn prepare(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> Result<ServedVersion, String> {
        let prepared = self.prepare_trained(trained, source).await;
        prepared.map_err(|error| format!("{error:#}"))
    }
}

#[async_trait]
impl VersionMaker for ModelLoader {
    async fn make(&self, training: Training<'_>) -> Result<Option<TrainedVersion>, VersionError> {
        match &self.trained {
            Some(trained) => trained.make(training, self).await,
            None => Ok(None),
        }
    }

    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        match &self.trained {
            Some(updater) => updater.remove(trained).await,
            None => Ok(()),
        }
    }
}
