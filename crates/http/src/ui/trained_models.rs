//! Models that exist by trainings only: those that clients created with Replicate's API. They are listed for
//! the account that trained them as soon as they have a version that can be run.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_core::Account;
use tidegate_service::{ServedModel, ServedVersion, TrainedModel};

use super::UiState;
use super::models::document_of;
use super::wire::{ModelDocument, ModelKind, ModelSummary, VersionDocument};
use crate::access::Identity;

impl UiState {
    /// The models without a folder, each with its newest trained version.
    pub(super) fn trained_summaries(&self) -> Vec<ModelSummary> {
        let Some(models) = &self.sources.models else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let all = models.trained_models().into_iter();
        let newest = all.filter(|trained| {
            let name = &trained.version.model;
            models.get(name).is_none() && trained.current().is_some() && seen.insert(name.clone())
        });
        let summary = |trained: Arc<TrainedModel>| {
            let version = trained.current()?;
            Some(self.trained_summary(&trained, &version))
        };
        let mut summaries: Vec<ModelSummary> = newest.filter_map(summary).collect();
        summaries.sort_by(|one, other| one.name.cmp(&other.name));
        summaries
    }

    fn trained_summary(&self, trained: &TrainedModel, version: &ServedVersion) -> ModelSummary {
        ModelSummary {
            kind: ModelKind::Trained,
            name: trained.version.model.clone(),
            owner: Some(trained.version.owner()),
            ..self.version_summary(&trained.version.model, version)
        }
    }

    /// The document of a model without a folder, if the client trained it.
    pub(super) fn show_trained<T>(
        &self,
        name: &str,
        client: &Identity,
        render: impl FnOnce(&ModelDocument<'_>) -> T,
    ) -> Option<T> {
        let models = self.sources.models.as_ref()?;
        let own = models.trained_models_of(name).into_iter();
        let trained = own
            .filter(|trained| trained.version.is_owned_by(&client.account))
            .find_map(|trained| Some((trained.current()?, trained)));
        let (version, trained) = trained?;
        let summary = self.trained_summary(&trained, &version);
        let versions = self.trained_versions(name, client);
        Some(document_of(summary, &version, versions, client, render))
    }

    /// The trained versions of a model that the client may see.
    pub(super) fn trained_versions(&self, name: &str, client: &Identity) -> Vec<VersionDocument> {
        let models = self.sources.models.iter();
        let trained = models.flat_map(|models| models.trained_models_of(name));
        trained
            .filter(|trained| {
                super::is_operator(client) || trained.version.is_owned_by(&client.account)
            })
            .filter_map(|trained| trained.current())
            .map(|version| self.version_document(&version, true))
            .collect()
    }

    /// All versions of a model with a folder, the current one first; then the trained ones.
    pub(super) fn versions_of(
        &self,
        model: &ServedModel,
        client: &Identity,
    ) -> Vec<VersionDocument> {
        let current = model.current();
        let versions = model.versions().into_iter();
        let own = versions.map(|version| {
            let is_current = version.id() == current.id();
            self.version_document(&version, is_current)
        });
        own.chain(self.trained_versions(model.name(), client))
            .collect()
    }

    fn version_document(&self, version: &ServedVersion, is_runnable: bool) -> VersionDocument {
        VersionDocument {
            version: version.id().to_owned(),
            health: self.health_of(&version.jobs.report()),
            runnable: is_runnable,
        }
    }
}

impl ModelSummary {
    /// Whether an account that is no operator sees the model.
    pub(super) fn is_visible_to(&self, account: &Account) -> bool {
        self.owner.as_ref().is_none_or(|owner| owner == account)
    }
}
