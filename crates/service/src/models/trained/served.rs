//! The versions that were trained, beside the models that are served from folders: each has a desk of its own as long
//! as the model is served whose code it runs.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tidegate_core::record::Target;
use tidegate_core::store::StoreError;

use crate::job_service::JobService;
use crate::models::trained::training::VersionMaker;
use crate::models::trained::version::TrainedVersion;
use crate::models::{ModelRegistry, ServedModel, ServedVersion};

/// A version that was trained.
pub struct TrainedModel {
    /// What is kept of it.
    pub version: TrainedVersion,
    /// What it is now, and what it was since the server was started; nothing while its source is not served.
    model: Option<Arc<ServedModel>>,
}

impl TrainedModel {
    /// The version that takes its jobs now.
    pub fn current(&self) -> Option<Arc<ServedVersion>> {
        Some(self.model.as_ref()?.current())
    }

    /// All that it was since the server was started, newest first. Only the first takes jobs.
    pub fn versions(&self) -> Vec<Arc<ServedVersion>> {
        self.model
            .as_ref()
            .map(|model| model.versions())
            .unwrap_or_default()
    }

    /// Takes its jobs now.
    pub fn jobs(&self) -> Option<JobService> {
        Some(self.model.as_ref()?.jobs())
    }
}

impl ModelRegistry {
    /// Who makes versions of what trainings give.
    pub fn set_version_maker(&self, maker: Weak<dyn VersionMaker>) {
        // Said once, when the server is put together.
        self.lookup().shared().version_maker.set(maker).ok();
    }

    /// All versions that were trained, newest first.
    pub fn trained_models(&self) -> Vec<Arc<TrainedModel>> {
        Vec::clone(&self.inner.trained.load())
    }

    /// The versions that were trained for this model, newest first.
    pub fn trained_models_of(&self, model: &str) -> Vec<Arc<TrainedModel>> {
        self.inner
            .trained
            .load()
            .iter()
            .filter(|trained| trained.version.model == model)
            .cloned()
            .collect()
    }

    /// The version that was trained with this id.
    pub fn trained_model_by_id(&self, id: &str) -> Option<Arc<TrainedModel>> {
        self.inner
            .trained
            .load()
            .iter()
            .find(|trained| trained.version.id() == id)
            .cloned()
    }

    /// The desk for jobs of this target; an id of the past leads to the version that came after it.
    pub fn service_of(&self, target: &Target) -> Option<JobService> {
        match self.trained_model_by_any_id(target) {
            Some(trained) => trained.jobs(),
            None => Some(self.get(&target.model)?.jobs()),
        }
    }

    /// The version that was trained and has, or had, this name.
    pub(crate) fn trained_model_by_any_id(&self, target: &Target) -> Option<Arc<TrainedModel>> {
        let is = |trained: &&Arc<TrainedModel>| {
            trained.version.model == target.model && trained.version.has_or_had_id(&target.version)
        };
        self.inner.trained.load().iter().find(is).cloned()
    }

    /// Knows a version that was trained, and offers it if it can be run. What it was before ends what it has taken.
    pub fn offer_trained_model(&self, trained: TrainedVersion, served: Option<ServedVersion>) {
        let _turn = self.changing();
        let key = trained.key();
        let mut all = self.trained_models();
        let known = all.iter().position(|known| known.version.key() == key);
        let before = known
            .map(|place| all.remove(place))
            .and_then(|trained| trained.model.clone());
        let model = match (before, served) {
            (Some(model), Some(version)) => {
                self.succeed(&model, Arc::new(version));
                Some(model)
            }
            (None, Some(version)) => Some(Arc::new(ServedModel::new(version))),
            (Some(model), None) => {
                self.end(&model);
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

    /// Knows a version that was trained no longer. It ends what it has taken.
    pub fn forget_trained_model(&self, trained: &TrainedVersion) {
        let _turn = self.changing();
        let (key, mut all) = (trained.key(), self.trained_models());
        let Some(place) = all.iter().position(|known| known.version.key() == key) else {
            return;
        };
        let gone = all.remove(place);
        self.inner.trained.store(Arc::new(all));
        self.remember_removed(gone.version.ids.iter().cloned());
        if let Some(model) = &gone.model {
            self.end(model);
        }
    }

    /// Remembers that versions with these ids were removed.
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

    /// Removes a version that was trained, for good.
    pub async fn remove_trained_model(&self, trained: &TrainedModel) -> Result<(), StoreError> {
        match self
            .lookup()
            .shared()
            .version_maker
            .get()
            .and_then(Weak::upgrade)
        {
            Some(maker) => maker.remove_version(&trained.version).await,
            None => Ok(()),
        }
    }
}
