//! Versions that trainings made. Those of a model that is served from a folder are visible to every
//! account; those of a user model to the accounts that see the model.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate_service::{JobService, ServedVersion, TrainedModel};

use super::AppState;
use super::reply::ApiError;
use crate::access::{Identity, Role};

/// `DELETE /v1/models/{owner}/{name}/versions/{version}`. Versions from folders cannot be deleted.
/// Clients accept only 204.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    if state
        .job_service(&owner, &name)
        .is_some_and(|service| service.target().version == version)
    {
        return Err(ApiError::ServedFromFolder);
    }
    state.models.refresh_trained_models().await?;
    let own = |trained: &Arc<TrainedModel>| {
        trained.version.id() == version && trained.version.is_owned_by(&caller.account)
    };
    if let Some(trained) = state
        .models
        .trained_models_of(&format!("{owner}/{name}"))
        .into_iter()
        .find(own)
    {
        // The model of the version may not exist any more: it can be removed during a training.
        state.models.remove_trained_model(&trained).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    state.check_model_visible(&caller, &owner, &name).await?;
    let all = state.trained_models(&caller, &owner, &name).await?;
    let trained = all
        .iter()
        .find(|trained| trained.version.id() == version)
        .ok_or(ApiError::Unknown("version"))?;
    let may_remove = caller.role == Role::Admin && state.job_service(&owner, &name).is_some();
    if !may_remove {
        return Err(ApiError::NotModelOwner(owner));
    }
    state.models.remove_trained_model(trained).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl AppState {
    /// The trained versions of a model that the caller may see, newest first.
    pub(super) async fn trained_models(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<Vec<Arc<TrainedModel>>, ApiError> {
        self.models.refresh_trained_models().await?;
        let all = self.models.trained_models_of(&format!("{owner}/{name}"));
        if all.is_empty() || self.job_service(owner, name).is_some() {
            return Ok(all);
        }
        match self.user_model(caller, owner, name).await {
            Ok(_) => Ok(all),
            Err(ApiError::Unknown(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Refuses a model that does not exist or that the caller may not see.
    pub(super) async fn check_model_visible(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        match self.job_service(owner, name) {
            Some(_) => Ok(()),
            None => self.user_model(caller, owner, name).await.map(drop),
        }
    }

    /// The job service of a version of a model, or of its latest version: the one of the folder, or
    /// the last trained one.
    pub(super) async fn service_for(
        &self,
        caller: &Identity,
        (owner, name): (&str, &str),
        version: Option<&str>,
    ) -> Result<Option<JobService>, ApiError> {
        let matches_version = |service: &JobService| {
            version.is_none_or(|version| version == service.target().version)
        };
        if let Some(service) = self.job_service(owner, name).filter(matches_version) {
            return Ok(Some(service));
        }
        let all = self.trained_models(caller, owner, name).await?;
        Ok(all
            .iter()
            .filter_map(|trained| trained.jobs())
            .find(matches_version))
    }

    /// The job service of a version, by the id of the version alone.
    pub(super) async fn service_of_version(
        &self,
        caller: &Identity,
        version: &str,
    ) -> Result<Option<JobService>, ApiError> {
        if let Some(model) = self.models.get_by_current_version(version) {
            return Ok(Some(model.jobs()));
        }
        self.models.refresh_trained_models().await?;
        let Some(trained) = self.models.trained_model_by_id(version) else {
            return Ok(None);
        };
        self.service_for(
            caller,
            split_model_name(&trained.version.model),
            Some(version),
        )
        .await
    }

    /// All versions of a model that the caller may see: first those that accept jobs, then the
    /// earlier ones of this run.
    pub(super) async fn all_versions(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<Vec<Arc<ServedVersion>>, ApiError> {
        let folder = self
            .models
            .get(&format!("{owner}/{name}"))
            .map(|model| model.versions())
            .unwrap_or_default();
        let all = self.trained_models(caller, owner, name).await?;
        let histories: Vec<Vec<Arc<ServedVersion>>> = std::iter::once(folder)
            .chain(all.iter().map(|trained| trained.versions()))
            .collect();
        let now = histories.iter().filter_map(|history| history.first());
        let past = histories.iter().flat_map(|history| history.iter().skip(1));
        let mut versions: Vec<Arc<ServedVersion>> = Vec::new();
        for version in now.chain(past) {
            // A folder that changes back has the same version again.
            if !versions.iter().any(|known| known.id() == version.id()) {
                versions.push(Arc::clone(version));
            }
        }
        Ok(versions)
    }

    /// The last trained version of a user model.
    pub(super) fn latest_trained(&self, model: &str) -> Option<Arc<ServedVersion>> {
        self.models
            .trained_models_of(model)
            .iter()
            .find_map(|trained| trained.current())
    }
}

/// Splits a model name into owner and name.
pub(super) fn split_model_name(model: &str) -> (&str, &str) {
    model.split_once('/').unwrap_or(("", model))
}
