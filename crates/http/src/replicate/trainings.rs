//! Create, look up, list and cancel trainings. What one gives becomes a version of its destination.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use tidegate_core::JobKind;

use super::AppState;
use super::extract::CreateRequest;
use super::predictions::RequestedJob;
use super::reply::ApiError;

/// `POST /v1/models/{owner}/{name}/versions/{version}/trainings`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    Path((owner, name, version)): Path<(String, String, String)>,
    order: CreateRequest,
) -> Result<Response, ApiError> {
    state.check_known(&order.caller, &owner, &name).await?;
    let desk = state
        .service_for(&order.caller, (&owner, &name), Some(&version))
        .await?
        .ok_or(ApiError::UnknownVersion)?;
    let create = order.read()?;
    let destination = create
        .destination
        .as_deref()
        .ok_or(ApiError::UnknownDestination)?;
    if !state.is_destination(&order.caller, destination).await? {
        return Err(ApiError::UnknownDestination);
    }
    if let Some(links) = &state.config.files {
        // How large the weights will be is not known; who has no room for any trains nothing.
        links.file_store.has_room(&order.caller.account, 1)?;
    }
    let destination = Some(destination.to_owned());
    state
        .submit(
            &order,
            &create,
            RequestedJob {
                kind: JobKind::Training,
                destination,
                ..RequestedJob::prediction(desk)
            },
        )
        .await
}
