//! `POST /v2/{endpoint}/retry/{id}`: a job that failed is run once more, under the same id.

use axum::http::StatusCode;
use axum::response::Response;

use super::client_request::ClientRequest;
use super::limits::Asked;
use super::render;
use super::reply::ApiError;
use super::wire::Wanted;
use crate::shared::response::json;

pub(super) async fn retry(visitor: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = visitor.enter(Asked::Run)?;
    let job = visitor.job(&endpoint).await?;
    let before = job.snapshot();
    match render::status(&before) {
        "FAILED" | "TIMED_OUT" if !before.data_removed => {}
        other => return Err(ApiError::NotRetried(other)),
    }
    let wanted = Wanted::read(&before.input)?;
    visitor
        .app
        .config
        .stream_cursors
        .forget(&visitor.caller.account, job.id());
    let job = visitor.submit(&endpoint, job.id().clone(), wanted).await?;
    Ok(json(
        StatusCode::OK,
        render::summary(job.id().as_str(), "IN_QUEUE"),
    ))
}
