//! `POST /v2/{endpoint}/retry/{id}`: a job that failed is run once more, under the same id.

use axum::http::StatusCode;
use axum::response::Response;

use super::limits::Asked;
use super::reply::Trouble;
use super::visit::Visitor;
use super::voice;
use super::wire::Wanted;
use crate::shared::response::json;

pub(super) async fn retry(visitor: Visitor) -> Result<Response, Trouble> {
    let endpoint = visitor.enter(Asked::Run)?;
    let job = visitor.job(&endpoint).await?;
    let before = job.snapshot();
    match voice::status(&before) {
        "FAILED" | "TIMED_OUT" if !before.data_removed => {}
        other => return Err(Trouble::NotRetried(other)),
    }
    let wanted = Wanted::read(&before.input)?;
    visitor
        .face
        .config
        .given
        .forget(&visitor.caller.account, job.id());
    let job = visitor.submit(&endpoint, job.id().clone(), wanted).await?;
    Ok(json(
        StatusCode::OK,
        voice::summary(job.id().as_str(), "IN_QUEUE"),
    ))
}
