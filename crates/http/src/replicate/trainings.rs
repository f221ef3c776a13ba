//! Create, look up, list and cancel trainings. What one gives becomes a version of its destination.

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
    face.check_known(&order.caller, &owner, &name).await?;
    let desk = face
        .desk_for(&order.caller, (&owner, &name), Some(&version))
        .await?
        .ok_or(Trouble::UnknownVersion)?;
    let create = order.read()?;
    let destination = create
        .destination
        .as_deref()
        .ok_or(Trouble::UnknownDestination)?;
    if !face.is_destination(&order.caller, destination).await? {
        return Err(Trouble::UnknownDestination);
    }
    if let Some(links) = &face.config.files {
        // How large the weights will be is not known; who has no room for any trains nothing.
        links.cabinet.has_room(&order.caller.account, 1)?;
    }
    let destination = Some(destination.to_owned());
    face.submit(
        &order,
        &create,
        Wanted {
            kind: JobKind::Training,
            destination,
            ..Wanted::prediction(desk)
        },
    )
    .await
}
