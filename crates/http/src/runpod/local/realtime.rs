//! `POST /ENDPOINT/realtime`: runs one job and returns only its result.

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

/// The key in a job's context for further fields of the job; see `tidegate.handler.calls`.
const EXTRAS: &str = "runpod";

pub(super) async fn run(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = readable(read_body(body, app.bounds()).await?);
    let run = Kind::Realtime.read(&parts.headers, &body)?;
    // The client's id is for the handler only: the job cannot be looked up by it, and it need not be
    // unique.
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
