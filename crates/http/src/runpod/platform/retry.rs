//! `POST /v2/{endpoint}/retry/{id}`: runs a failed job again under the same id.

use axum::http::StatusCode;
use axum::response::Response;

use super::client_request::ClientRequest;
use super::limits::RequestKind;
use super::render;
use super::reply::ApiError;
use super::wire::JobRequest;
use crate::shared::response::json;

pub(super) async fn retry(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Run)?;
    let job = request.job(&endpoint).await?;
    let before = job.snapshot();
    match render::status(&before) {
        "FAILED" | "TIMED_OUT" if !before.data_removed => {}
        other => return Err(ApiError::NotRetryable(other)),
    }
    let job_request = JobRequest::read(&before.input)?;
    request
        .app
        .config
        .stream_cursors
        .reset(&request.caller.account, job.id());
    let job = request
        .submit(&endpoint, job.id().clone(), job_request)
        .await?;
    Ok(json(
        StatusCode::OK,
        render::summary(job.id().as_str(), "IN_QUEUE"),
    ))
}
