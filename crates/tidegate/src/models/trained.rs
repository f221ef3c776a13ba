//! Trained versions: the code of a model that is served from a folder, with other weights.
//!
//! They are always loaded on demand. When the model gets a new version, its trained versions follow;
//! when its folder is gone, they cannot run until it is back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::chain;
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_runtime::{LoadFn, LoadLimit, OnDemand, StartedModel, read_schema};
use tidegate_service::{
    JobService, ServedVersion, TrainedVersion, Training, VersionError, VersionMaker,
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
    /// are loaded.
    pub(crate) async fn load_trained(&self) -> anyhow::Result<()> {
        let _guard = self.update_lock.lock().await;
        self.models.remember_removed(
            self.trained_versions
                .removed()
                .await
                .context("failed to read the removed trained versions")?,
        );
        for trained in self
            .trained_versions
            .all()
            .await
            .context("failed to read the trained versions")?
        {
            self.models.offer_trained_model(trained, None);
        }
        for source in self.models.all() {
            self.update_locked(source.name()).await;
        }
        Ok(())
    }

    /// Moves the trained versions of a model to its current version.
    pub(super) async fn update_trained_versions(&self, source: &str) {
        let _guard = self.update_lock.lock().await;
        self.update_locked(source).await;
    }

    async fn update_locked(&self, source: &str) {
        let current = self.models.get(source).map(|model| model.current());
        for model in self
            .models
            .trained_models()
            .into_iter()
            .rev()
            .filter(|model| model.version.source == source)
        {
            match &current {
                Some(current)
                    if model.current().is_some()
                        && model.version.id()
                            == model.version.id_with_source_version(current.id()) => {}
                Some(current) => {
                    self.offer_trained(model.version.with_source_version(current.id()), current)
                        .await
                }
                None => self.models.offer_trained_model(model.version.clone(), None),
            }
        }
    }

    /// Adds a trained version with the current code of its source. One that cannot run stays listed.
    async fn offer_trained(&self, trained: TrainedVersion, source: &ServedVersion) {
        if let Err(error) = self.trained_versions.put(&trained).await {
            tracing::error!(version = trained.full_name(), error = %chain(&error), "failed to store trained version");
        }
        let version = match self.prepare_trained(&trained, source).await {
            Ok(version) => Some(version),
            Err(error) => {
                tracing::error!(
                    version = trained.full_name(),
                    error = format!("{error:#}"),
                    "failed to load trained version"
                );
                None
            }
        };
        self.models.offer_trained_model(trained, version);
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
        let target = Target {
            model: trained.model.clone(),
            version: trained.id().to_owned(),
            deployment: None,
        };
        // All versions of a model share their metrics.
        let jobs = match self.job_service_of(&trained.model) {
            Some(service) => service.for_version(executor, target),
            None => self.models.lookup().for_model(executor, target),
        };
        Ok(ServedVersion {
            jobs: jobs.with_stream_history(self.factory.stream_history(&model)),
            created_at: trained.created_at,
            description: None,
            folder: source.folder.clone(),
            is_handler: false,
        })
    }

    fn job_service_of(&self, model: &str) -> Option<JobService> {
        let folder = self.models.get(model).map(|model| model.jobs());
        folder.or_else(|| {
            self.models
                .trained_models_of(model)
                .iter()
                .find_map(|model| model.jobs())
        })
    }

    /// Starts the model with a new copy of the weights each time, because it may write to them.
    fn start_with_weights(&self, trained: &TrainedVersion, model: &ModelSource) -> LoadFn {
        let (stored, trained) = (Arc::clone(&self.trained_versions), trained.clone());
        let (starter, observer) = (
            self.factory.starter(model),
            (self.observer_for)(&trained.full_name()),
        );
        Box::new(move || {
            let (stored, trained, starter, observer) = (
                Arc::clone(&stored),
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
                let copied = stored.copy_weights(&trained, workdir.path()).await;
                copied.map_err(|error| {
                    format!(
                        "failed to copy the weights of {}: {error}",
                        trained.full_name()
                    )
                })?;
                starter.scratch().chown_workdir(&workdir).map_err(failed)?;
                let starter: ModelStarter =
                    starter.with_env(COG_WEIGHTS, trained.weights_path(workdir.path()));
                Ok(StartedModel {
                    runtime: starter.start(observer),
                    workdir: Some(workdir),
                })
            })
        })
    }
}

#[async_trait]
impl VersionMaker for ModelLoader {
    async fn make(&self, training: Training<'_>) -> Result<Option<TrainedVersion>, VersionError> {
        let _guard = self.update_lock.lock().await;
        // A trained version can be trained again: the code is that of its source.
        let before = self
            .models
            .trained_models()
            .into_iter()
            .find(|model| model.version.has_or_had_id(&training.target.version));
        if before.is_none() && self.models.was_removed(&training.target.version) {
            return Err(VersionError::Removed);
        }
        let source = before.map_or_else(
            || training.target.model.clone(),
            |model| model.version.source.clone(),
        );
        let current = self.models.get(&source).map(|model| model.current());
        let source_version = current
            .as_ref()
            .map_or(training.target.version.as_str(), |current| current.id());
        let Some(trained) = self
            .trained_versions
            .record_training(&training, &source, source_version)
            .await?
        else {
            return Ok(None);
        };
        // The server may have died after it made a version of this training and before it reported it.
        for model in self.models.trained_models() {
            if model.version.is_result_of(training.account, training.id)
                && model.version.key() != trained.key()
            {
                self.remove(&model.version).await?;
            }
        }
        match &current {
            Some(current) => self.offer_trained(trained.clone(), current).await,
            None => self.models.offer_trained_model(trained.clone(), None),
        }
        tracing::info!(
            version = trained.full_name(),
            source,
            "created trained version"
        );
        Ok(Some(trained))
    }

    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let _guard = self.update_lock.lock().await;
        self.remove(trained).await
    }
}

impl ModelLoader {
    async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        self.trained_versions.remove(trained).await?;
        self.models.forget_trained_model(trained);
        tracing::info!(version = trained.full_name(), "removed trained version");
        Ok(())
    }
}
