//! Versions that trainings have made, as far as a caller may see them: those of a model that is served from a folder
//! are everybody's, those of a model that somebody has made are for whoever sees that.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate_service::{JobService, ServedVersion, TrainedModel};

use super::AppState;
use super::reply::ApiError;
use crate::access::{Identity, Role};

/// `DELETE /v1/models/{owner}/{name}/versions/{version}`: those from folders stay. Clients take 204 only for an answer
/// that it is gone, which it is.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    if state
        .desk(&owner, &name)
        .is_some_and(|desk| desk.target().version == version)
    {
        return Err(ApiError::ServedFromFolder);
    }
    let own = |trained: &Arc<TrainedModel>| {
        trained.kept.id() == version && trained.kept.is_of(&caller.account)
    };
    if let Some(trained) = state
        .models
        .trained_models_of(&format!("{owner}/{name}"))
        .into_iter()
        .find(own)
    {
        // Also when its model is gone, which may have been removed while it was trained.
        state.models.remove_trained_model(&trained).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    state.check_known(&caller, &owner, &name).await?;
    let all = state.trained_models(&caller, &owner, &name).await?;
    let trained = all
        .iter()
        .find(|trained| trained.kept.id() == version)
        .ok_or(ApiError::Unknown("version"))?;
    let looks_after_it = caller.role == Role::Admin && state.desk(&owner, &name).is_some();
    if !looks_after_it {
        return Err(ApiError::NotYourModel(owner));
    }
    state.models.remove_trained_model(trained).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl AppState {
    /// The versions of a model that were trained and that the caller may see, newest first.
    pub(super) async fn trained_models(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<Vec<Arc<TrainedModel>>, ApiError> {
        let all = self.models.trained_models_of(&format!("{owner}/{name}"));
        if all.is_empty() || self.desk(owner, name).is_some() {
            return Ok(all);
        }
        match self.draft(caller, owner, name).await {
            Ok(_) => Ok(all),
            Err(ApiError::Unknown(_)) => Ok(Vec::new()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Refuses a model that is not there for the caller.
    pub(super) async fn check_known(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        match self.desk(owner, name) {
            Some(_) => Ok(()),
            None => self.draft(caller, owner, name).await.map(drop),
        }
    }

    /// The desk of a version of a model, or of its newest: what the folder says, or what was trained last.
    pub(super) async fn service_for(
        &self,
        caller: &Identity,
        (owner, name): (&str, &str),
        version: Option<&str>,
    ) -> Result<Option<JobService>, ApiError> {
        let is_wanted =
            |desk: &JobService| version.is_none_or(|version| version == desk.target().version);
        if let Some(desk) = self.desk(owner, name).filter(is_wanted) {
            return Ok(Some(desk));
        }
        let all = self.trained_models(caller, owner, name).await?;
        Ok(all
            .iter()
            .filter_map(|trained| trained.jobs())
            .find(is_wanted))
    }

    /// The same for whoever knows only the id of the version.
    pub(super) async fn desk_of_version(
        &self,
        caller: &Identity,
        version: &str,
    ) -> Result<Option<JobService>, ApiError> {
        if let Some(model) = self.models.of_version(version) {
            return Ok(Some(model.jobs()));
        }
        let Some(trained) = self.models.trained_model_by_id(version) else {
            return Ok(None);
        };
        self.service_for(caller, parts(&trained.kept.model), Some(version))
            .await
    }

    /// All versions of a model that the caller may see: what takes jobs first, then what has been since the start.
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
        let lives: Vec<Vec<Arc<ServedVersion>>> = std::iter::once(folder)
            .chain(all.iter().map(|trained| trained.versions()))
            .collect();
        let now = lives.iter().filter_map(|life| life.first());
        let past = lives.iter().flat_map(|life| life.iter().skip(1));
        let mut versions: Vec<Arc<ServedVersion>> = Vec::new();
        for version in now.chain(past) {
            // A version that came back is the same again.
            if !versions.iter().any(|known| known.id() == version.id()) {
                versions.push(Arc::clone(version));
            }
        }
        Ok(versions)
    }

    /// What was trained last for a model that somebody has made.
    pub(super) fn latest_trained(&self, model: &str) -> Option<Arc<ServedVersion>> {
        self.models
            .trained_models_of(model)
            .iter()
            .find_map(|trained| trained.now())
    }
}

/// Owner and name of a model.
pub(super) fn parts(model: &str) -> (&str, &str) {
    model.split_once('/').unwrap_or(("", model))
}
