//! Loads models and puts them on offer, and other versions in their place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tidegate_core::health::{Health, SetupStatus};
use tidegate_core::port::{BoxFuture, Executor};
use tidegate_core::record::Target;
use tidegate_runtime::{LoadLimit, Observer, OnDemand, StartedModel, read_schema};
use tidegate_service::{ModelRegistry, TrainedVersions};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::names::full_name;
use super::serve_target::ServeTarget;
use crate::model_factory::ModelFactory;
use crate::model_source::ModelSource;
use crate::source_version;
use crate::usage_error::UsageError;

/// How often is looked whether a new version is loaded.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often is looked whether its files have changed meanwhile.
const CHANGED_AGAIN: Duration = Duration::from_secs(1);

/// When models are loaded.
#[derive(Clone)]
pub(crate) enum LoadPolicy {
    /// At once, and they stay.
    Eager,
    /// When somebody wants them.
    OnDemand {
        /// They leave when nobody has wanted them for so long.
        idle_timeout: Option<Duration>,
        /// How many are there at once.
        load_limit: LoadLimit,
    },
}

/// Told how the children of a model get on, by the model's name; or by that of a version that was trained.
pub(crate) type ObserverFactory = Box<dyn Fn(&str) -> Arc<dyn Observer> + Send + Sync>;

/// Puts the models of a folder on offer.
pub(crate) struct ModelLoader {
    pub(crate) wanted: ServeTarget,
    pub(crate) owner: Option<String>,
    pub(crate) load_policy: LoadPolicy,
    pub(crate) factory: ModelFactory,
    pub(crate) models: ModelRegistry,
    pub(crate) observer_for: ObserverFactory,
    /// Where versions that were trained are written down.
    pub(crate) register: Arc<TrainedVersions>,
    /// Whoever changes them; the others wait.
    pub(crate) turn: Mutex<()>,
}

impl ModelLoader {
    /// Reads what there is. One that cannot be read is left out if there are others.
    pub(crate) fn read(&self) -> anyhow::Result<BTreeMap<String, ModelSource>> {
        let mut found: BTreeMap<String, ModelSource> = BTreeMap::new();
        let mut first_error = None;
        for folder in self.wanted.folders() {
            let model = match self.factory.read(&folder) {
                // By the way it was found: a link in the folder of models is a model there.
                Ok(model) if self.wanted.root().is_some() => ModelSource {
                    dir: folder,
                    ..model
                },
                Ok(model) => model,
                Err(error) => {
                    if self.wanted.root().is_some() {
                        tracing::error!(folder = %folder.display(), error = format!("{error:#}"), "a model is left out");
                    }
                    first_error.get_or_insert(error);
                    continue;
                }
            };
            let name = full_name(&model, self.wanted.root(), self.owner.as_deref());
            if let Some(other) = found.get(&name) {
                let message = format!(
                    "two models are called `{name}`: `{}` and `{}`",
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

    /// Puts models on offer for the first time. Those that are loaded at once get ready meanwhile.
    pub(crate) async fn open(&self, found: BTreeMap<String, ModelSource>) -> anyhow::Result<()> {
        let alone = found.len() == 1;
        for (name, model) in found {
            match self.prepare(&name, &model).await {
                Ok(version) => self.models.offer(version),
                Err(error) if alone => return Err(error),
                Err(error) => tracing::error!(
                    model = name,
                    error = format!("{error:#}"),
                    "a model is left out"
                ),
            }
        }
        Ok(())
    }

    /// Looks at the folders again: what is new is loaded, what has changed is replaced when its new version
    /// works, what is gone leaves.
    pub(crate) async fn renew(&self) {
        let found = match self.read() {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the models cannot be read again, those before stay"
                );
                return;
            }
        };
        for (name, model) in &found {
            if let Err(error) = self.renew_one(name, model).await {
                tracing::error!(
                    model = name,
                    error = format!("{error:#}"),
                    "the model cannot be loaded again, the version before stays"
                );
            }
        }
        // One that cannot be read at the moment is not gone.
        let folders = self.wanted.folders();
        for model in self.models.all() {
            if !found.contains_key(model.name()) && !folders.contains(&model.now().folder) {
                tracing::info!(
                    model = model.name(),
                    "the model is gone and not offered any more"
                );
                self.models.withdraw(model.name());
                self.follow(model.name()).await;
            }
        }
    }

    async fn renew_one(&self, name: &str, model: &ModelSource) -> anyhow::Result<()> {
        let known = self.models.get(name);
        let seen = version_of(model.source()).await?;
        if known.is_some_and(|known| known.now().id() == seen.id) {
            return Ok(());
        }
        let version = self.prepare(name, model).await?;
        if let LoadPolicy::Eager = self.load_policy
            && let Err(error) = works(&*version.executor(), model.source()).await
        {
            version.executor().stop().await;
            return Err(error);
        }
        tracing::info!(
            model = name,
            version = version.id(),
            "a new version is offered"
        );
        self.models.offer(version);
        self.follow(name).await;
        Ok(())
    }

    /// A version that can be put on offer.
    async fn prepare(
        &self,
        name: &str,
        model: &ModelSource,
    ) -> anyhow::Result<tidegate_service::ServedVersion> {
        let seen = version_of(model.source()).await?;
        let executor: Arc<dyn Executor> = match &self.load_policy {
            LoadPolicy::Eager => Arc::new(self.factory.start(model, (self.observer_for)(name))),
            LoadPolicy::OnDemand {
                idle_timeout,
                load_limit,
            } => {
                let launch = self.factory.launch(model);
                let schema = read_schema(&launch).await?;
                let (starter, observer) = (self.factory.starter(model), (self.observer_for)(name));
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
            version: seen.id,
            deployment: None,
        };
        Ok(tidegate_service::ServedVersion {
            jobs: match self.models.get(name) {
                Some(known) => known.jobs().succeeding(executor, target),
                None => self.models.lookup().beside(executor, target),
            },
            created_at: seen.changed_at,
            description: None,
            folder: model.dir.clone(),
        })
    }
}

/// Waits until a model is ready, or says why it will not be: it cannot, or its files have changed again.
async fn works(executor: &dyn Executor, folder: &Path) -> anyhow::Result<()> {
    let before = fingerprint(folder).await;
    let mut looked_at = Instant::now();
    loop {
        if looked_at.elapsed() >= CHANGED_AGAIN {
            looked_at = Instant::now();
            if fingerprint(folder).await != before {
                bail!("its files have changed while it was loaded");
            }
        }
        let report = executor.report();
        match report.health {
            Health::Ready | Health::Busy => return Ok(()),
            Health::Unknown | Health::Starting => tokio::time::sleep(LOOK_AGAIN).await,
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
            "the files of the model in `{}` cannot be read",
            folder.display()
        )
    })
}
