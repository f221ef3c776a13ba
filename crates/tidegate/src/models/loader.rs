//! Loads the models of a folder into the registry, and replaces them by new versions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tidegate_core::health::{Health, SetupStatus};
use tidegate_core::port::{BoxFuture, Executor};
use tidegate_core::record::Target;
use tidegate_runtime::{LoadLimit, Observer, OnDemand, StartedModel, read_schema};
use tidegate_service::{ModelRegistry, TrainedUpdater, WeightsSource};
use tokio::time::Instant;

use super::names::full_name;
use super::serve_target::ServeTarget;
use crate::model_factory::ModelFactory;
use crate::model_source::ModelSource;
use crate::source_version;
use crate::usage_error::UsageError;

/// How often the loader checks whether a new version is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often it checks whether the files have changed meanwhile.
const CHANGE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// When models are loaded.
#[derive(Clone)]
pub(crate) enum LoadPolicy {
    /// At startup, and they stay loaded.
    Eager,
    /// At the first request.
    OnDemand {
        /// How long a model without requests stays loaded.
        idle_timeout: Option<Duration>,
        /// How many models are loaded at the same time.
        load_limit: LoadLimit,
    },
}

/// Creates the observer of a model by its name, or of a trained version by its full name, and by the number of
/// its processes.
pub(crate) type ObserverFactory = Box<dyn Fn(&str, usize) -> Arc<dyn Observer> + Send + Sync>;

/// Loads the models of a folder into the registry.
pub(crate) struct ModelLoader {
    pub(crate) target: ServeTarget,
    pub(crate) owner: Option<String>,
    pub(crate) load_policy: LoadPolicy,
    pub(crate) factory: ModelFactory,
    pub(crate) models: ModelRegistry,
    pub(crate) observer_for: ObserverFactory,
    /// The weights of trained versions.
    pub(crate) weights: Arc<dyn WeightsSource>,
    /// The trained versions, if this process has the stored ones.
    pub(crate) trained: Option<TrainedUpdater>,
}

impl ModelLoader {
    /// Reads the models of the folder. An unreadable one is skipped if there are others.
    pub(crate) fn discover(&self) -> anyhow::Result<BTreeMap<String, ModelSource>> {
        let mut found: BTreeMap<String, ModelSource> = BTreeMap::new();
        let mut first_error = None;
        for folder in self.target.folders() {
            let model = match self.factory.read(&folder) {
                // With the path that was found: a symbolic link in the folder is a model of the folder.
                Ok(model) if self.target.root().is_some() => ModelSource {
                    dir: folder,
                    ..model
                },
                Ok(model) => model,
                Err(error) => {
                    if self.target.root().is_some() {
                        tracing::error!(folder = %folder.display(), error = format!("{error:#}"), "failed to read model, skipping it");
                    }
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            let name = full_name(&model, self.target.root(), self.owner.as_deref());
            if let Some(other) = found.get(&name) {
                let message = format!(
                    "two models have the name `{name}`: `{}` and `{}`",
                    other.dir.display(),
                    model.dir.display()
                );
                return Err(UsageError::new(message)
                    .hint("rename one of the folders, or change `image` in its cog.yaml")
                    .into());
            }
            found.insert(name, model);
        }
        match first_error {
            Some(error) if found.is_empty() => Err(error),
            Some(_) | None => Ok(found),
        }
    }

    /// Adds the models to the registry. Their setup runs in the background.
    pub(crate) async fn load_all(
        &self,
        found: BTreeMap<String, ModelSource>,
    ) -> anyhow::Result<()> {
        let is_only = found.len() == 1;
        for (name, model) in found {
            match self.prepare_version(&name, &model).await {
                Ok(version) => self.models.offer(version),
                Err(error) if is_only => return Err(error),
                Err(error) => tracing::error!(
                    model = name,
                    error = format!("{error:#}"),
                    "failed to load model, skipping it"
                ),
            }
        }
        Ok(())
    }

    /// Reads the folders again: loads new models, replaces changed models when the new version is
    /// ready, and removes models whose folder is gone.
    pub(crate) async fn reload(&self) {
        let found = match self.discover() {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "failed to reload models, keeping the current ones"
                );
                return;
            }
        };
        for (name, model) in &found {
            if let Err(error) = self.reload_model(name, model).await {
                tracing::error!(
                    model = name,
                    error = format!("{error:#}"),
                    "failed to reload model, keeping the current version"
                );
            }
        }
        // A model that cannot be read at the moment is not gone.
        let folders = self.target.folders();
        for model in self.models.all() {
            if !found.contains_key(model.name()) && !folders.contains(&model.current().folder) {
                tracing::info!(model = model.name(), "removed model, its folder is gone");
                self.models.withdraw(model.name());
                self.update_trained_versions(model.name()).await;
            }
        }
    }

    async fn reload_model(&self, name: &str, model: &ModelSource) -> anyhow::Result<()> {
        let known = self.models.get(name);
        let current = version_of(model.path()).await?;
        if known.is_some_and(|known| known.current().id() == current.id) {
            return Ok(());
        }
        self.factory.install(model).await?;
        let is_eager = matches!(self.load_policy, LoadPolicy::Eager);
        let fits = !is_eager || self.factory.fits_on_gpus(model, name, &current.id);
        if !fits {
            tracing::info!(
                model = name,
                "the GPU memory is not enough for the old and the new version, loading the new one when the old one has ended"
            );
        }
        let version = self.prepare_version(name, model).await?;
        if is_eager
            && fits
            && let Err(error) = wait_until_ready(&*version.executor(), model.path()).await
        {
            version.executor().stop().await;
            return Err(error);
        }
        tracing::info!(model = name, version = version.id(), "serving new version");
        self.models.offer(version);
        self.update_trained_versions(name).await;
        Ok(())
    }

    /// Creates a version for the registry.
    async fn prepare_version(
        &self,
        name: &str,
        model: &ModelSource,
    ) -> anyhow::Result<tidegate_service::ServedVersion> {
        let current = version_of(model.path()).await?;
        let starter = self.factory.starter(model, name, &current.id);
        let observer = (self.observer_for)(name, starter.children());
        let executor: Arc<dyn Executor> = match &self.load_policy {
            LoadPolicy::Eager => Arc::new(starter.start(observer)),
            LoadPolicy::OnDemand {
                idle_timeout,
                load_limit,
            } => {
                let launch = self.factory.launch(model);
                let schema = read_schema(&launch).await?;
                let start = move || StartedModel {
                    runtime: starter.start(Arc::clone(&observer)),
                    workdir: None,
                };
                let start =
                    Box::new(move || Box::pin(std::future::ready(Ok(start()))) as BoxFuture<_>);
                Arc::new(OnDemand::new(
                    schema,
                    *idle_timeout,
                    load_limit.clone(),
                    start,
                ))
            }
        };
        let target = Target {
            model: name.to_owned(),
            version: current.id,
            deployment: None,
        };
        let jobs = match self.models.get(name) {
            Some(known) => known.jobs().for_version(executor, target),
            None => self.models.lookup().for_model(executor, target),
        };
        Ok(tidegate_service::ServedVersion {
            jobs: jobs.with_stream_history(self.factory.stream_history(model)),
            created_at: current.changed_at,
            description: None,
            folder: model.dir.clone(),
            is_handler: model.is_script(),
        })
    }
}

/// Waits until a model is ready. Fails if its setup fails or its files change again.
async fn wait_until_ready(executor: &dyn Executor, folder: &Path) -> anyhow::Result<()> {
    let before = fingerprint(folder).await;
    let mut checked_at = Instant::now();
    loop {
        if checked_at.elapsed() >= CHANGE_CHECK_INTERVAL {
            checked_at = Instant::now();
            if fingerprint(folder).await != before {
                bail!("its files changed while it was loading");
            }
        }
        let report = executor.report();
        match report.health {
            Health::Ready | Health::Busy => return Ok(()),
            Health::Unknown | Health::Starting => tokio::time::sleep(POLL_INTERVAL).await,
            Health::SetupFailed | Health::Defunct => {
                let logs = report
                    .setup
                    .filter(|setup| setup.status == SetupStatus::Failed)
                    .map(|setup| setup.logs);
                bail!(
                    "its setup failed: {}",
                    logs.or(report.health_error).unwrap_or_default()
                );
            }
        }
    }
}

async fn fingerprint(folder: &Path) -> Option<u64> {
    let owned = folder.to_owned();
    tokio::task::spawn_blocking(move || source_version::fingerprint(&owned))
        .await
        .ok()
}

async fn version_of(folder: &Path) -> anyhow::Result<source_version::SourceVersion> {
    let owned = folder.to_owned();
    let seen = tokio::task::spawn_blocking(move || source_version::of_folder(&owned)).await?;
    seen.with_context(|| {
        format!(
            "failed to read the files of the model in `{}`",
            folder.display()
        )
    })
}
