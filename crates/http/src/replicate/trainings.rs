//! Create, look up, list and cancel trainings. What a training gives is its output; no version is made of it.

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tidegate_core::JobKind;

use super::Shared;
use super::origin::Origin;
use super::predictions::Request;
use super::reply::Trouble;
use super::wire::Create;
use crate::access::Identity;
use crate::shared::envelope::read_object;
use crate::shared::json::json;

/// `POST /v1/models/{owner}/{name}/versions/{version}/trainings`
pub(super) async fn create(
    State(face): State<Shared>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
    origin: Origin,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let desk = face.desk(&owner, &name).ok_or(Trouble::Unknown("model"))?;
    if version != desk.target().version {
        return Err(Trouble::UnknownVersion);
    }
    let body = face.body(&headers, body).await?;
    let create = read_object::<Create<'_>>(&body)?.unwrap_or_default();
    let known = match &create.destination {
        Some(destination) => face.is_destination(&caller, destination).await?,
        None => false,
    };
    if !known {
        return Err(Trouble::UnknownDestination);
    }
    face.submit(Request {
        desk,
        kind: JobKind::Training,
        body: &body,
        create: &create,
        headers: &headers,
        caller,
        origin,
        deployment: None,
    })
    .await
}

/// `GET /v1/trainings/{id}`
pub(super) async fn show(
    State(face): State<Shared>,
    Path(id): Path<String>,
    caller: Identity,
    origin: Origin,
) -> Result<Response, Trouble> {
    let job = face.find(JobKind::Training, &caller, &id).await?;
    Ok(json(StatusCode::OK, face.written(&job.snapshot(), &origin)))
}

/// `POST /v1/trainings/{id}/cancel`
pub(super) async fn cancel(
    State(face): State<Shared>,
    Path(id): Path<String>,
    caller: Identity,
    origin: Origin,
) -> Result<Response, Trouble> {
    face.cancel(JobKind::Training, &id, caller, origin).await
}

/// `GET /v1/trainings`, newest first.
pub(super) async fn list(
    State(face): State<Shared>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, Trouble> {
    face.list(JobKind::Training, query.as_deref().unwrap_or_default(), caller, origin).await
}
