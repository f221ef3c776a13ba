//! `POST /ENDPOINT/realtime`: one job for who waits for nothing but its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use tidegate_service::Submission;

use super::AppState;
use super::jobs::submission;
use super::reply::{self, ApiError};
use super::wire::{Kind, readable};
use crate::access::Identity;
use crate::shared::body_limit::{read_body, slice_or_copy};

/// The note in a job's context that holds further keys of the job; see `tidegate.handler.calls`.
const EXTRAS: &str = "runpod";

pub(super) async fn run(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = readable(read_body(body, app.bounds()).await?);
    let run = Kind::Realtime.read(&parts.headers, &body)?;
    // The caller's id is for the handler. Nobody looks the job up by it, and it may come twice.
    let extras = serde_json::json!({ "id": run.id }).to_string();
    let context = BTreeMap::from([(EXTRAS.to_owned(), extras)]);
    let input = slice_or_copy(&body, run.input.get());
    let job = app
        .submit(Submission {
            context,
            ..submission(caller.account, input)
        })
        .await?;
    job.ended().await;
    Ok(reply::realtime_result(&job.snapshot()))
}
