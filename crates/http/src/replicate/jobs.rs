//! The operations that predictions and trainings share: get, cancel, list.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_core::JobKind;

use super::AppState;
use super::client_profile::ClientProfile;
use super::reply::ApiError;
use crate::access::Identity;

/// The kind of job that a path is for.
pub(super) trait JobResource {
    const KIND: JobKind;
}

/// `/v1/predictions`
pub(super) struct PredictionResource;

impl JobResource for PredictionResource {
    const KIND: JobKind = JobKind::Prediction;
}

/// `/v1/trainings`
pub(super) struct TrainingResource;

impl JobResource for TrainingResource {
    const KIND: JobKind = JobKind::Training;
}

/// `GET …/{id}`
pub(super) async fn show<R: JobResource>(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    caller: Identity,
    client: ClientProfile,
) -> Result<Response, ApiError> {
    let job = state.find(R::KIND, &caller, &id).await?;
    Ok(state.response(StatusCode::OK, &job.snapshot(), &client))
}

/// `POST …/{id}/cancel`. npm's client announces a body and sends none.
pub(super) async fn cancel<R: JobResource>(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
    caller: Identity,
    client: ClientProfile,
) -> Result<Response, ApiError> {
    state.cancel(R::KIND, &id, caller, client).await
}

/// `GET …`, newest first.
pub(super) async fn list<R: JobResource>(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
    caller: Identity,
    client: ClientProfile,
) -> Result<Response, ApiError> {
    state
        .list(
            R::KIND,
            query.as_deref().unwrap_or_default(),
            caller,
            client,
        )
        .await
}
