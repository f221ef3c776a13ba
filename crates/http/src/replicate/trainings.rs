//! Create, look up, list and cancel trainings. What a training gives is its output; no version is made of it.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use tidegate_core::JobKind;

use super::Shared;
use super::origin::Origin;
use super::predictions::Request;
use super::reply::Trouble;
use super::wire::Create;
use crate::access::Identity;
use crate::shared::envelope::read_object;

/// `POST /v1/models/{owner}/{name}/versions/{version}/trainings`
pub(super) async fn create(
    State(face): State<Shared>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
    origin: Origin,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let body = face.body(&headers, body).await?;
    let desk = face.desk(&owner, &name).ok_or(Trouble::Unknown("model"))?;
    if version != desk.target().version {
        return Err(Trouble::UnknownVersion);
    }
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
