//! `POST /v2/{endpoint}/retry/{id}`: a job that failed is run once more, under the same id.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::limits::Asked;
use super::reply::Trouble;
use super::wire::Wanted;
use super::{Shared, voice};
use crate::access::Identity;
use crate::shared::json::json;

pub(super) async fn retry(
    State(face): State<Shared>,
    Path((endpoint, id)): Path<(String, String)>,
    caller: Identity,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let endpoint = face.asked(&endpoint, &caller, Asked::Run)?;
    let job = face.find(&endpoint, &caller, &id).await?;
    let before = job.snapshot();
    match voice::status(&before) {
        "FAILED" | "TIMED_OUT" if !before.data_removed => {}
        other => return Err(Trouble::NotRetried(other)),
    }
    let wanted = Wanted::read(&before.input)?;
    face.config.given.forget(&caller.account, job.id());
    let job = face.submit(&endpoint, caller, job.id().clone(), wanted, &headers).await?;
    Ok(json(StatusCode::OK, voice::brief(job.id().as_str(), "IN_QUEUE")))
}
