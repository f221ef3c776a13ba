//! [`TrainedUpdater`]: keeps the trained versions of the store and those of the registry equal. It creates,
//! removes and reads them, and lets them follow when the model whose code they run gets another version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::chain;
use tidegate_core::port::Executor;
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::trained_version::TrainedVersion;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::stored::TrainedVersions;
use super::training::{Training, VersionError};
use crate::job_service::JobService;
use crate::models::{ModelRegistry, ServedVersion};

/// How often all versions are read, because a process may have died before it recorded a change.
const FULL_REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Makes trained versions accept jobs.
#[async_trait]
pub trait TrainedServing: Send + Sync {
    /// Prepares a version with the code of its source, which is served.
    async fn prepare(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> Result<ServedVersion, String>;
}

/// Which version of its source a trained version runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceChanges {
    /// The one that this process serves, also if that is an earlier one again.
    Own,
    /// The newest one that any process knows: processes learn of a new one at different times.
    Shared,
}

/// Changes the trained versions of a process.
pub struct TrainedUpdater {
    models: ModelRegistry,
    stored: Arc<TrainedVersions>,
    source_changes: SourceChanges,
    /// Held while trained versions change.
    state: Mutex<UpdaterState>,
}

#[derive(Default)]
struct UpdaterState {
    /// When all versions were read, and what the last change was at that time.
    last_read: Option<(Instant, Option<Bytes>)>,
    /// The version of each source at the last refresh, if it was served.
    sources: BTreeMap<String, Option<String>>,
    /// The version of its source that each trained version was prepared with, by key.
    prepared: HashMap<String, String>,
}

impl TrainedUpdater {
    /// Serves the stored versions in `models`.
    pub fn new(
        models: ModelRegistry,
        stored: Arc<TrainedVersions>,
        source_changes: SourceChanges,
    ) -> Self {
        Self {
            models,
            stored,
            source_changes,
            state: Mutex::default(),
        }
    }

    /// The stored versions.
    pub fn stored(&self) -> &Arc<TrainedVersions> {
        &self.stored
    }

    /// Adds the stored versions to the registry. Called once, at startup.
    pub async fn load(&self, serving: &dyn TrainedServing) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        self.models.remember_removed(self.stored.removed().await?);
        self.read_all(&mut state, serving).await?;
        for source in self.models.all() {
            self.follow_locked(&mut state, source.name(), serving).await;
        }
        Ok(())
    }

    /// Reads the versions if another process has changed them, and lets all follow their sources. Returns the
    /// versions that were removed.
    pub async fn refresh(
        &self,
        serving: &dyn TrainedServing,
    ) -> Result<Vec<TrainedVersion>, StoreError> {
        // Before the lock, so that concurrent requests do not wait for each other's read.
        let change = self.stored.last_change().await?;
        let mut state = self.state.lock().await;
        let is_current = state
            .last_read
            .as_ref()
            .is_some_and(|(at, seen)| *seen == change && at.elapsed() < FULL_REFRESH_INTERVAL);
        let removed = if is_current {
            Vec::new()
        } else {
            self.read_all(&mut state, serving).await?
        };
        let sources = self.current_sources();
        for (source, version) in &sources {
            if !is_current || state.sources.get(source) != Some(version) {
                self.follow_locked(&mut state, source, serving).await;
            }
        }
        state.sources = sources;
        Ok(removed)
    }

    /// The sources of all versions, with the version of each that is served.
    fn current_sources(&self) -> BTreeMap<String, Option<String>> {
        let mut sources = BTreeMap::new();
        for trained in self.models.trained_models() {
            let source = &trained.version.source;
            if !sources.contains_key(source) {
                let current = self.models.get(source).map(|model| model.current());
                sources.insert(
                    source.clone(),
                    current.map(|version| version.id().to_owned()),
                );
            }
        }
        sources
    }

    /// Makes the registry equal to the store; returns the versions that were removed.
    async fn read_all(
        &self,
        state: &mut UpdaterState,
        serving: &dyn TrainedServing,
    ) -> Result<Vec<TrainedVersion>, StoreError> {
        let (at, change) = (Instant::now(), self.stored.last_change().await?);
        let stored = self.stored.all().await?;
        let keys: HashSet<String> = stored.iter().map(TrainedVersion::key).collect();
        let known = self.models.trained_models();
        let mut removed = Vec::new();
        for model in &known {
            if !keys.contains(&model.version.key()) {
                state.prepared.remove(&model.version.key());
                self.models.forget_trained_model(&model.version);
                removed.push(model.version.clone());
            }
        }
        for trained in stored {
            if known.iter().any(|model| model.version == trained) {
                continue;
            }
            match self.models.get(&trained.source) {
                Some(source) => {
                    self.offer(state, trained, &source.current(), serving).await;
                }
                None => self.models.offer_trained_model(trained, None),
            }
        }
        state.last_read = Some((at, change));
        Ok(removed)
    }

    /// Moves the trained versions of a model to its current version.
    pub async fn follow(&self, source: &str, serving: &dyn TrainedServing) {
        let mut state = self.state.lock().await;
        self.follow_locked(&mut state, source, serving).await;
    }

    async fn follow_locked(
        &self,
        state: &mut UpdaterState,
        source: &str,
        serving: &dyn TrainedServing,
    ) {
        let current = self.models.get(source).map(|model| model.current());
        for model in self
            .models
            .trained_models()
            .into_iter()
            .rev()
            .filter(|model| model.version.source == source)
        {
            let prepared = state.prepared.get(&model.version.key());
            match (&current, model.current()) {
                (Some(current), Some(_))
                    if prepared.is_some_and(|prepared| prepared == current.id()) => {}
                (Some(current), _) => {
                    let known = model.version.clone();
                    self.offer(state, known, current, serving).await;
                }
                (None, Some(_)) => self.models.offer_trained_model(model.version.clone(), None),
                (None, None) => {}
            }
        }
    }

    /// A version with the code that it has when this version of its source is served.
    fn followed(&self, trained: &TrainedVersion, source_version: &str) -> TrainedVersion {
        match self.source_changes {
            SourceChanges::Shared
                if trained.has_or_had_id(&trained.id_with_source_version(source_version)) =>
            {
                trained.clone()
            }
            SourceChanges::Own | SourceChanges::Shared => {
                trained.with_source_version(source_version)
            }
        }
    }

    /// Adds a trained version with the current code of its source. One that cannot run stays listed.
    async fn offer(
        &self,
        state: &mut UpdaterState,
        known: TrainedVersion,
        source: &ServedVersion,
        serving: &dyn TrainedServing,
    ) {
        let key = known.key();
        let mut trained = self.followed(&known, source.id());
        if trained != known {
            let change = |stored: &TrainedVersion| self.followed(stored, source.id());
            match self.stored.update(&key, change).await {
                Ok(Some(stored)) => trained = stored,
                // The next refresh removes it.
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(version = trained.full_name(), error = %chain(&error), "failed to store trained version");
                }
            }
        }
        let version = match serving.prepare(&trained, source).await {
            Ok(version) => Some(version),
            Err(error) => {
                tracing::error!(
                    version = trained.full_name(),
                    error,
                    "failed to load trained version"
                );
                None
            }
        };
        state.prepared.insert(key, source.id().to_owned());
        self.models.offer_trained_model(trained, version);
    }

    /// Creates a version from a training.
    pub async fn make(
        &self,
        training: Training<'_>,
        serving: &dyn TrainedServing,
    ) -> Result<Option<TrainedVersion>, VersionError> {
        let mut state = self.state.lock().await;
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
            .stored
            .record_training(&training, &source, source_version)
            .await?
        else {
            return Ok(None);
        };
        // A process may have died after it made a version of this training and before it reported it.
        for model in self.models.trained_models() {
            if model.version.is_result_of(training.account, training.id)
                && model.version.key() != trained.key()
            {
                self.remove_locked(&model.version).await?;
            }
        }
        match &current {
            Some(current) => {
                let trained = trained.clone();
                self.offer(&mut state, trained, current, serving).await;
            }
            None => self.models.offer_trained_model(trained.clone(), None),
        }
        tracing::info!(
            version = trained.full_name(),
            source,
            "created trained version"
        );
        Ok(Some(trained))
    }

    /// Removes a version permanently.
    pub async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let _guard = self.state.lock().await;
        self.remove_locked(trained).await
    }

    async fn remove_locked(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        self.stored.remove(trained).await?;
        self.models.forget_trained_model(trained);
        tracing::info!(version = trained.full_name(), "removed trained version");
        Ok(())
    }
}

impl ModelRegistry {
    /// The job service of a trained version, which runs on this executor. All versions of a model share their
    /// metrics.
    pub fn service_of_trained(
        &self,
        trained: &TrainedVersion,
        executor: Arc<dyn Executor>,
    ) -> JobService {
        let target = Target {
            model: trained.model.clone(),
            version: trained.id().to_owned(),
            deployment: None,
        };
        let folder = self.get(&trained.model).map(|model| model.jobs());
        let sibling = folder.or_else(|| {
            self.trained_models_of(&trained.model)
                .iter()
                .find_map(|model| model.jobs())
        });
        match sibling {
            Some(service) => service.for_version(executor, target),
            None => self.lookup().for_model(executor, target),
        }
    }
}
