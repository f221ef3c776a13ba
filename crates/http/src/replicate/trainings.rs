//! Create, look up, list and cancel trainings. What a training gives is its output; no version is made of it.

use axum::extract::{Path, State};
use axum::response::Response;
use tidegate_core::JobKind;

use super::Shared;
use super::order::Order;
use super::predictions::Wanted;
use super::reply::Trouble;

/// `POST /v1/models/{owner}/{name}/versions/{version}/trainings`
pub(super) async fn create(
    State(face): State<Shared>,
    Path((owner, name, version)): Path<(String, String, String)>,
    order: Order,
) -> Result<Response, Trouble> {
    let desk = face.desk(&owner, &name).ok_or(Trouble::Unknown("model"))?;
    if version != desk.target().version {
        return Err(Trouble::UnknownVersion);
    }
    let create = order.read()?;
    let known = match &create.destination {
        Some(destination) => face.is_destination(&order.caller, destination).await?,
        None => false,
    };
    if !known {
        return Err(Trouble::UnknownDestination);
    }
    face.submit(&order, &create, Wanted { kind: JobKind::Training, ..Wanted::prediction(desk) }).await
}
