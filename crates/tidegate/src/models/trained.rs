//! Versions that were trained: the code of a model that is served from a folder, with other weights.
//!
//! They are loaded when somebody wants them, whatever the models of the folders do. When the folder gets another
//! version they move along with it, and when it is gone they wait until it is back.

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

/// How a model is told where its weights are.
const COG_WEIGHTS: &str = "COG_WEIGHTS";
/// When a version leaves that nobody wants, on a server whose other models never leave.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// How long is waited until the source has said what it takes.
const UNTIL_READ: Duration = Duration::from_secs(20);

impl ModelLoader {
    /// Offers all that are written down. To be called once, with the models of the folders in place.
    pub(crate) async fn open_trained(&self) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.models.remember_removed(
            self.register
                .removed()
                .await
                .context("the versions that were removed cannot be read")?,
        );
        for trained in self
            .register
            .all()
            .await
            .context("the versions that were trained cannot be read")?
        {
            self.models.offer_trained_model(trained, None);
        }
        for source in self.models.all() {
            self.bring_along(source.name()).await;
        }
        Ok(())
    }

    /// Lets versions move along with the model whose code they run.
    pub(super) async fn follow(&self, source: &str) {
        let _turn = self.turn.lock().await;
        self.bring_along(source).await;
    }

    async fn bring_along(&self, source: &str) {
        let now = self.models.get(source).map(|model| model.now());
        for tuned in self
            .models
            .trained_models()
            .into_iter()
            .rev()
            .filter(|tuned| tuned.kept.source == source)
        {
            match &now {
                Some(now)
                    if tuned.now().is_some() && tuned.kept.id() == tuned.kept.id_with(now.id()) => {
                }
                Some(now) => self.offer_trained(tuned.kept.moved_to(now.id()), now).await,
                None => self.models.offer_trained_model(tuned.kept.clone(), None),
            }
        }
    }

    /// Offers a version with the code of its source as it is now. What cannot be run is known all the same.
    async fn offer_trained(&self, trained: TrainedVersion, source: &ServedVersion) {
        if let Err(error) = self.register.keep(&trained).await {
            tracing::error!(version = trained.full_name(), error = %chain(&error), "what a version is called now could not be written down");
        }
        let version = match self.prepare_trained(&trained, source).await {
            Ok(version) => Some(version),
            Err(error) => {
                tracing::error!(
                    version = trained.full_name(),
                    error = format!("{error:#}"),
                    "a version that was trained cannot be offered"
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
        // The code is the same, and so is what it takes.
        source.jobs.described(UNTIL_READ).await;
        let schema = match source.jobs.description() {
            Some(schema) => Bytes::clone(&schema.document),
            None => read_schema(&self.factory.launch(&model)).await?,
        };
        let (idle_timeout, load_limit) = match &self.load_policy {
            LoadPolicy::Eager => (Some(IDLE), LoadLimit::new(None)),
            LoadPolicy::OnDemand {
                idle_timeout,
                load_limit,
            } => (*idle_timeout, load_limit.clone()),
        };
        let executor = Arc::new(OnDemand::new(
            schema,
            idle_timeout,
            load_limit,
            self.start_of(trained, &model),
        ));
        let target = Target {
            model: trained.model.clone(),
            version: trained.id().to_owned(),
            deployment: None,
        };
        Ok(ServedVersion {
            // All versions of a model are counted together.
            jobs: match self.service_of(&trained.model) {
                Some(desk) => desk.succeeding(executor, target),
                None => self.models.lookup().beside(executor, target),
            },
            created_at: trained.created_at,
            description: None,
            folder: source.folder.clone(),
        })
    }

    fn service_of(&self, model: &str) -> Option<JobService> {
        let folder = self.models.get(model).map(|model| model.jobs());
        folder.or_else(|| {
            self.models
                .trained_models_of(model)
                .iter()
                .find_map(|tuned| tuned.jobs())
        })
    }

    /// Loads the model with the weights, which are brought anew each time: it may have written into them.
    fn start_of(&self, trained: &TrainedVersion, model: &ModelSource) -> LoadFn {
        let (register, trained) = (Arc::clone(&self.register), trained.clone());
        let (starter, observer) = (
            self.factory.starter(model),
            (self.observer_for)(&trained.full_name()),
        );
        Box::new(move || {
            let (register, trained, starter, observer) = (
                Arc::clone(&register),
                trained.clone(),
                starter.clone(),
                Arc::clone(&observer),
            );
            Box::pin(async move {
                let failed = |error: std::io::Error| {
                    format!(
                        "the weights of {} have no place: {error}",
                        trained.full_name()
                    )
                };
                let workdir = starter.scratch().create_workdir().map_err(failed)?;
                let brought = register.copy_weights(&trained, workdir.path()).await;
                brought.map_err(|error| {
                    format!(
                        "the weights of {} cannot be had: {error}",
                        trained.full_name()
                    )
                })?;
                starter.scratch().chown_workdir(&workdir).map_err(failed)?;
                let starter: ModelStarter =
                    starter.with_env(COG_WEIGHTS, trained.weights_in(workdir.path()));
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
        let _turn = self.turn.lock().await;
        // What is trained may have been trained before: the code is that of its source.
        let before = self
            .models
            .trained_models()
            .into_iter()
            .find(|tuned| tuned.kept.was(&training.target.version));
        if before.is_none() && self.models.was_removed(&training.target.version) {
            return Err(VersionError::Removed);
        }
        let source = before.map_or_else(
            || training.target.model.clone(),
            |tuned| tuned.kept.source.clone(),
        );
        let now = self.models.get(&source).map(|model| model.now());
        let source_version = now
            .as_ref()
            .map_or(training.target.version.as_str(), |now| now.id());
        let Some(trained) = self
            .register
            .note(&training, &source, source_version)
            .await?
        else {
            return Ok(None);
        };
        // The server may have died with this training after it had made a version that nobody has heard of.
        for tuned in self.models.trained_models() {
            if tuned.kept.came_of(training.account, training.id)
                && tuned.kept.key() != trained.key()
            {
                self.remove(&tuned.kept).await?;
            }
        }
        match &now {
            Some(now) => self.offer_trained(trained.clone(), now).await,
            None => self.models.offer_trained_model(trained.clone(), None),
        }
        tracing::info!(
            version = trained.full_name(),
            source,
            "a version was trained"
        );
        Ok(Some(trained))
    }

    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.remove(trained).await
    }
}

impl ModelLoader {
    async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        self.register.remove(trained).await?;
        self.models.forget(trained);
        tracing::info!(
            version = trained.full_name(),
            "a version that was trained is removed"
        );
        Ok(())
    }
}
