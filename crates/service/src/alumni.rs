//! The versions that were trained, beside the models that are served from folders: each has a desk of its own as long
//! as the model is served whose code it runs.

use std::sync::{Arc, Weak};

use tidegate_core::record::Target;
use tidegate_core::store::StoreError;

use crate::jobs::Jobs;
use crate::models::{Model, Models, Version};
use crate::school::School;
use crate::trained::Trained;

/// A version that was trained.
pub struct Alumnus {
    /// What is kept of it.
    pub kept: Trained,
    /// What it is now, and what it was since the server was started; nothing while its source is not served.
    model: Option<Arc<Model>>,
}

impl Alumnus {
    /// The version that takes its jobs now.
    pub fn now(&self) -> Option<Arc<Version>> {
        Some(self.model.as_ref()?.now())
    }

    /// All that it was since the server was started, newest first. Only the first takes jobs.
    pub fn versions(&self) -> Vec<Arc<Version>> {
        self.model.as_ref().map(|model| model.versions()).unwrap_or_default()
    }

    /// Takes its jobs now.
    pub fn jobs(&self) -> Option<Jobs> {
        Some(self.model.as_ref()?.jobs())
    }
}

impl Models {
    /// Who makes versions of what trainings give.
    pub fn taught_by(&self, school: Weak<dyn School>) {
        // Said once, when the server is put together.
        self.lookup().inner.school.set(school).ok();
    }

    /// All versions that were trained, newest first.
    pub fn alumni(&self) -> Vec<Arc<Alumnus>> {
        Vec::clone(&self.inner.alumni.load())
    }

    /// The versions that were trained for this model, newest first.
    pub fn alumni_of(&self, model: &str) -> Vec<Arc<Alumnus>> {
        self.inner.alumni.load().iter().filter(|alumnus| alumnus.kept.model == model).cloned().collect()
    }

    /// The version that was trained with this id.
    pub fn alumnus(&self, id: &str) -> Option<Arc<Alumnus>> {
        self.inner.alumni.load().iter().find(|alumnus| alumnus.kept.id() == id).cloned()
    }

    /// The desk for jobs of this target; an id of the past leads to the version that came after it.
    pub fn desk_of(&self, target: &Target) -> Option<Jobs> {
        match self.once_called(target) {
            Some(alumnus) => alumnus.jobs(),
            None => Some(self.get(&target.model)?.jobs()),
        }
    }

    /// The version that was trained and has, or had, this name.
    pub(crate) fn once_called(&self, target: &Target) -> Option<Arc<Alumnus>> {
        let is = |alumnus: &&Arc<Alumnus>| alumnus.kept.model == target.model && alumnus.kept.was(&target.version);
        self.inner.alumni.load().iter().find(is).cloned()
    }

    /// Knows a version that was trained, and offers it if it can be run. What it was before ends what it has taken.
    pub fn enroll(&self, kept: Trained, version: Option<Version>) {
        let _turn = self.changing();
        let key = kept.key();
        let mut alumni = self.alumni();
        let known = alumni.iter().position(|alumnus| alumnus.kept.key() == key);
        let before = known.map(|place| alumni.remove(place)).and_then(|alumnus| alumnus.model.clone());
        let model = match (before, version) {
            (Some(model), Some(version)) => {
                self.succeed(&model, Arc::new(version));
                Some(model)
            }
            (None, Some(version)) => Some(Arc::new(Model::new(version))),
            (Some(model), None) => {
                self.end(&model);
                None
            }
            (None, None) => None,
        };
        alumni.insert(known.unwrap_or(0), Arc::new(Alumnus { kept, model }));
        alumni.sort_by_key(|alumnus| std::cmp::Reverse(alumnus.kept.created_at));
        self.inner.alumni.store(Arc::new(alumni));
    }

    /// Knows a version that was trained no longer. It ends what it has taken.
    pub fn forget(&self, kept: &Trained) {
        let _turn = self.changing();
        let (key, mut alumni) = (kept.key(), self.alumni());
        let Some(place) = alumni.iter().position(|alumnus| alumnus.kept.key() == key) else { return };
        let gone = alumni.remove(place);
        self.inner.alumni.store(Arc::new(alumni));
        if let Some(model) = &gone.model {
            self.end(model);
        }
    }

    /// Removes a version that was trained, for good.
    pub async fn expel(&self, alumnus: &Alumnus) -> Result<(), StoreError> {
        match self.lookup().inner.school.get().and_then(Weak::upgrade) {
            Some(school) => school.expel(&alumnus.kept).await,
            None => Ok(()),
        }
    }
}
