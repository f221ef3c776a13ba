//! The versions that were trained, beside the models that are served from folders: each has a desk of its own as long
//! as the model is served whose code it runs.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tidegate_core::record::Target;
use tidegate_core::store::StoreError;

use crate::jobs::JobService;
use crate::models::{ModelRegistry, ServedModel, ServedVersion};
use crate::trained::TrainedVersion;
use crate::training::VersionMaker;

/// A version that was trained.
pub struct Tuned {
    /// What is kept of it.
    pub kept: TrainedVersion,
    /// What it is now, and what it was since the server was started; nothing while its source is not served.
    model: Option<Arc<ServedModel>>,
}

impl Tuned {
    /// The version that takes its jobs now.
    pub fn now(&self) -> Option<Arc<ServedVersion>> {
        Some(self.model.as_ref()?.now())
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
    pub fn versions_made_by(&self, maker: Weak<dyn VersionMaker>) {
        // Said once, when the server is put together.
        self.lookup().inner.maker.set(maker).ok();
    }

    /// All versions that were trained, newest first.
    pub fn tuned(&self) -> Vec<Arc<Tuned>> {
        Vec::clone(&self.inner.tuned.load())
    }

    /// The versions that were trained for this model, newest first.
    pub fn tuned_of(&self, model: &str) -> Vec<Arc<Tuned>> {
        self.inner
            .tuned
            .load()
            .iter()
            .filter(|tuned| tuned.kept.model == model)
            .cloned()
            .collect()
    }

    /// The version that was trained with this id.
    pub fn tuned_by_id(&self, id: &str) -> Option<Arc<Tuned>> {
        self.inner
            .tuned
            .load()
            .iter()
            .find(|tuned| tuned.kept.id() == id)
            .cloned()
    }

    /// The desk for jobs of this target; an id of the past leads to the version that came after it.
    pub fn desk_of(&self, target: &Target) -> Option<JobService> {
        match self.once_called(target) {
            Some(tuned) => tuned.jobs(),
            None => Some(self.get(&target.model)?.jobs()),
        }
    }

    /// The version that was trained and has, or had, this name.
    pub(crate) fn once_called(&self, target: &Target) -> Option<Arc<Tuned>> {
        let is = |tuned: &&Arc<Tuned>| {
            tuned.kept.model == target.model && tuned.kept.was(&target.version)
        };
        self.inner.tuned.load().iter().find(is).cloned()
    }

    /// Knows a version that was trained, and offers it if it can be run. What it was before ends what it has taken.
    pub fn offer_tuned(&self, kept: TrainedVersion, version: Option<ServedVersion>) {
        let _turn = self.changing();
        let key = kept.key();
        let mut all = self.tuned();
        let known = all.iter().position(|tuned| tuned.kept.key() == key);
        let before = known
            .map(|place| all.remove(place))
            .and_then(|tuned| tuned.model.clone());
        let model = match (before, version) {
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
        all.insert(known.unwrap_or(0), Arc::new(Tuned { kept, model }));
        all.sort_by_key(|tuned| std::cmp::Reverse(tuned.kept.created_at));
        self.inner.tuned.store(Arc::new(all));
    }

    /// Knows a version that was trained no longer. It ends what it has taken.
    pub fn forget(&self, kept: &TrainedVersion) {
        let _turn = self.changing();
        let (key, mut all) = (kept.key(), self.tuned());
        let Some(place) = all.iter().position(|tuned| tuned.kept.key() == key) else {
            return;
        };
        let gone = all.remove(place);
        self.inner.tuned.store(Arc::new(all));
        self.remember_removed(gone.kept.ids.iter().cloned());
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
    pub async fn remove_tuned(&self, tuned: &Tuned) -> Result<(), StoreError> {
        match self.lookup().inner.maker.get().and_then(Weak::upgrade) {
            Some(maker) => maker.remove_version(&tuned.kept).await,
            None => Ok(()),
        }
    }
}
