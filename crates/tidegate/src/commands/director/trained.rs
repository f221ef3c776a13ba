//! Trained versions on a director: each is prepared for its first job, and loaded and unloaded like any other
//! trained version.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::trained_version::TrainedVersion;
use tidegate_director::TrainedModels;
use tidegate_service::{ServedVersion, TrainedServing};
use tokio::sync::Mutex;

use crate::models::ModelLoader;

/// The number of versions from which those that are not loaded are forgotten.
const MAX_KNOWN: usize = 256;

/// Serves trained versions with the models of a director.
pub(super) struct TrainedOnDirector {
    loader: ModelLoader,
    /// Held while a version is prepared.
    preparing: Mutex<()>,
}

impl TrainedOnDirector {
    pub(super) fn new(loader: ModelLoader) -> Self {
        Self {
            loader,
            preparing: Mutex::default(),
        }
    }

    fn known(&self, trained: &TrainedVersion) -> Option<Arc<ServedVersion>> {
        let found = self.loader.models.trained_model_by_id(trained.id())?;
        found.current()
    }

    /// Forgets versions that are not loaded, the oldest first, if there are many. They are prepared again for
    /// their next job.
    fn forget_unloaded(&self) {
        let known = self.loader.models.trained_models();
        let unloaded = known.iter().rev().filter(|trained| {
            let version = trained.current();
            version.is_none_or(|version| version.executor().pool_status().slots == 0)
        });
        for trained in unloaded.take(known.len().saturating_sub(MAX_KNOWN)) {
            self.loader.models.forget_trained_model(&trained.version);
        }
    }
}

#[async_trait]
impl TrainedModels for TrainedOnDirector {
    async fn serve(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> Result<Arc<ServedVersion>, String> {
        let trained = trained.with_source_version(source.id());
        if let Some(known) = self.known(&trained) {
            return Ok(known);
        }
        let _guard = self.preparing.lock().await;
        if let Some(known) = self.known(&trained) {
            return Ok(known);
        }
        self.forget_unloaded();
        let version = self.loader.prepare(&trained, source).await?;
        let models = &self.loader.models;
        models.offer_trained_model(trained.clone(), Some(version));
        self.known(&trained)
            .ok_or_else(|| "the trained version was replaced".to_owned())
    }
}
