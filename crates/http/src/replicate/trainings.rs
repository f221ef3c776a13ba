//! Creates trainings. The output of a training becomes a version of its destination model.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use tidegate_core::JobKind;

use super::AppState;
use super::extract::CreateJobRequest;
use super::predictions::RequestedJob;
use super::reply::ApiError;

/// `POST /v1/models/{owner}/{name}/versions/{version}/trainings`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    Path((owner, name, version)): Path<(String, String, String)>,
    request: CreateJobRequest,
) -> Result<Response, ApiError> {
    state
        .check_model_visible(&request.caller, &owner, &name)
        .await?;
    let service = state
        .service_for(&request.caller, (&owner, &name), Some(&version))
        .await?
        .ok_or(ApiError::UnknownVersion)?;
    let create = request.read()?;
    let destination = create
        .destination
        .as_deref()
        .ok_or(ApiError::UnknownDestination)?;
    if !state.is_destination(&request.caller, destination).await? {
        return Err(ApiError::UnknownDestination);
    }
    if let Some(links) = &state.config.files {
        // The size of the weights is unknown until the end. An account without any quota left
        // cannot train.
        links
            .file_store
            .check_quota(&request.caller.account, 1)
            .await?;
    }
    let destination = Some(destination.to_owned());
    state
        .submit(
            &request,
            &create,
            RequestedJob {
                kind: JobKind::Training,
                destination,
                ..RequestedJob::prediction(service)
            },
        )
        .await
}
