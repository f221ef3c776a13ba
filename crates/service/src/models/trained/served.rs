//! The trained versions in the model registry, beside the models that are served from folders. Each
//! has a job service while its source, the model whose code it runs, is served.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::trained_version::TrainedVersion;

use crate::job_service::JobService;
use crate::models::trained::training::VersionMaker;
use crate::models::{ModelRegistry, ServedModel, ServedVersion};

/// A trained version in the registry.
pub struct TrainedModel {
    /// The stored version.
    pub version: TrainedVersion,
    /// The served versions since the server started; `None` while its source is not served.
    model: Option<Arc<ServedModel>>,
}

impl TrainedModel {
    /// The served version that accepts its jobs.
    pub fn current(&self) -> Option<Arc<ServedVersion>> {
        Some(self.model.as_ref()?.current())
    }

    /// All served versions since the server started, newest first. Only the first accepts jobs.
    pub fn versions(&self) -> Vec<Arc<ServedVersion>> {
        self.model
            .as_ref()
            .map(|model| model.versions())
            .unwrap_or_default()
    }

    /// The job service of the current version.
    pub fn jobs(&self) -> Option<JobService> {
        Some(self.model.as_ref()?.jobs())
    }
}

impl ModelRegistry {
    /// Sets the port that creates versions from trainings.
    pub fn set_version_maker(&self, maker: Weak<dyn VersionMaker>) {
        // Called once, at startup.
        self.lookup().shared().version_maker.set(maker).ok();
    }

    /// All trained versions, newest first.
    pub fn trained_models(&self) -> Vec<Arc<TrainedModel>> {
        Vec::clone(&self.inner.trained.load())
    }

    /// The trained versions of this model, newest first.
    pub fn trained_models_of(&self, model: &str) -> Vec<Arc<TrainedModel>> {
        self.inner
            .trained
            .load()
            .iter()
            .filter(|trained| trained.version.model == model)
            .cloned()
            .collect()
    }

    /// The trained version with this current id.
    pub fn trained_model_by_id(&self, id: &str) -> Option<Arc<TrainedModel>> {
        self.inner
            .trained
            .load()
            .iter()
            .find(|trained| trained.version.id() == id)
            .cloned()
    }

    /// The job service for jobs of this target. A former id of a trained version resolves to its
    /// current one.
    pub fn service_of(&self, target: &Target) -> Option<JobService> {
        match self.trained_model_by_any_id(target) {
            Some(trained) => trained.jobs(),
            None => Some(self.get(&target.model)?.jobs()),
        }
    }

    /// The trained version that has, or had, this id.
    pub(crate) fn trained_model_by_any_id(&self, target: &Target) -> Option<Arc<TrainedModel>> {
        let is = |trained: &&Arc<TrainedModel>| {
            trained.version.model == target.model && trained.version.has_or_had_id(&target.version)
        };
        self.inner.trained.load().iter().find(is).cloned()
    }

    /// Adds or updates a trained version, and serves it if `served` is given. The version that was
    /// served before finishes its jobs.
    pub fn offer_trained_model(&self, trained: TrainedVersion, served: Option<ServedVersion>) {
        let _guard = self.lock_for_write();
        let key = trained.key();
        let mut all = self.trained_models();
        let known = all.iter().position(|known| known.version.key() == key);
        let previous = known
            .map(|index| all.remove(index))
            .and_then(|trained| trained.model.clone());
        let model = match (previous, served) {
            (Some(model), Some(version)) => {
                self.replace_version(&model, Arc::new(version));
                Some(model)
            }
            (None, Some(version)) => Some(Arc::new(ServedModel::new(version))),
            (Some(model), None) => {
                self.retire_model(&model);
                None
            }
            (None, None) => None,
        };
        all.insert(
            known.unwrap_or(0),
            Arc::new(TrainedModel {
                version: trained,
                model,
            }),
        );
        all.sort_by_key(|known| std::cmp::Reverse(known.version.created_at));
        self.inner.trained.store(Arc::new(all));
    }

    /// Removes a trained version from the registry. It finishes its jobs.
    pub fn forget_trained_model(&self, trained: &TrainedVersion) {
        let _guard = self.lock_for_write();
        let (key, mut all) = (trained.key(), self.trained_models());
        let Some(index) = all.iter().position(|known| known.version.key() == key) else {
            return;
        };
        let removed = all.remove(index);
        self.inner.trained.store(Arc::new(all));
        self.remember_removed(removed.version.ids().iter().cloned());
        if let Some(model) = &removed.model {
            self.retire_model(model);
        }
    }

    /// Records that the trained versions with these ids were removed.
    pub fn remember_removed(&self, ids: impl IntoIterator<Item = String>) {
        self.removed().extend(ids);
    }

    /// Whether there was a trained version with this id, and it was removed.
    pub fn was_removed(&self, id: &str) -> bool {
        self.removed().contains(id)
    }

    fn removed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.inner
            .removed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a trained version permanently.
    pub async fn remove_trained_model(&self, trained: &TrainedModel) -> Result<(), StoreError> {
        match self.lookup().version_maker() {
            Some(maker) => maker.remove_version(&trained.version).await,
            None => Ok(()),
        }
    }

    /// Reads the trained versions that other processes have made or removed.
    pub async fn refresh_trained_models(&self) -> Result<(), StoreError> {
        match self.lookup().version_maker() {
            Some(maker) => maker.refresh().await,
            None => Ok(()),
        }
    }
}

impl JobService {
    /// What creates versions from trainings, if this process does.
    pub(crate) fn version_maker(&self) -> Option<Arc<dyn VersionMaker>> {
        self.shared().version_maker.get().and_then(Weak::upgrade)
    }
}
