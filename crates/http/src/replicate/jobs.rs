//! What predictions and trainings have in common: look up, cancel, list.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_core::JobKind;

use super::Shared;
use super::reader::Reader;
use super::reply::Trouble;
use crate::access::Identity;
use crate::shared::response::json;

/// Which of the two a path is for.
pub(super) trait Resource {
    const KIND: JobKind;
}

/// `/v1/predictions`
pub(super) struct Predictions;

impl Resource for Predictions {
    const KIND: JobKind = JobKind::Prediction;
}

/// `/v1/trainings`
pub(super) struct Trainings;

impl Resource for Trainings {
    const KIND: JobKind = JobKind::Training;
}

/// `GET …/{id}`
pub(super) async fn show<R: Resource>(
    State(face): State<Shared>,
    Path(id): Path<String>,
    caller: Identity,
    reader: Reader,
) -> Result<Response, Trouble> {
    let job = face.find(R::KIND, &caller, &id).await?;
    Ok(json(StatusCode::OK, face.written(&job.snapshot(), &reader)))
}

/// `POST …/{id}/cancel`. npm's client says that a body comes, and sends none.
pub(super) async fn cancel<R: Resource>(
    State(face): State<Shared>,
    Path(id): Path<String>,
    caller: Identity,
    reader: Reader,
) -> Result<Response, Trouble> {
    face.cancel(R::KIND, &id, caller, reader).await
}

/// `GET …`, newest first.
pub(super) async fn list<R: Resource>(
    State(face): State<Shared>,
    RawQuery(query): RawQuery,
    caller: Identity,
    reader: Reader,
) -> Result<Response, Trouble> {
    face.list(
        R::KIND,
        query.as_deref().unwrap_or_default(),
        caller,
        reader,
    )
    .await
}
