//! `/stream/{id}`: the parts of a job's output.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::{Account, JobId};
use tidegate_service::{Job, ReadPosition};

use super::AppState;
use super::jobs::JOB_NOT_FOUND;
use super::reply::{self, ApiError};
use crate::access::Identity;

/// How long `GET` waits for new parts: clients ask again at once, and time out after ten seconds.
const HOLD: Duration = Duration::from_secs(1);
/// For how many jobs the read position is remembered.
const MAX_JOBS: usize = 4096;

const NOT_A_GENERATOR: &str = "Stream not supported, handler must be a generator.";

/// How many parts of each job clients have read.
#[derive(Default)]
pub(super) struct LocalStreamCursors(Mutex<CursorCounts>);

#[derive(Default)]
struct CursorCounts {
    counts: HashMap<(Account, JobId), usize>,
    order: VecDeque<(Account, JobId)>,
}

impl LocalStreamCursors {
    fn position(&self, job: &Job) -> usize {
        let cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cursors
            .counts
            .get(&(job.account().clone(), job.id().clone()))
            .copied()
            .unwrap_or_default()
    }

    /// Takes the parts that no other request has taken meanwhile.
    fn take(&self, job: &Job, from: usize, mut parts: Vec<Bytes>) -> Vec<Bytes> {
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (job.account().clone(), job.id().clone());
        let known = cursors.counts.get(&key).copied();
        parts.drain(
            ..known
                .unwrap_or_default()
                .saturating_sub(from)
                .min(parts.len()),
        );
        let stream_cursors = known.unwrap_or_default().max(from) + parts.len();
        if cursors.counts.insert(key.clone(), stream_cursors).is_none() {
            cursors.order.push_back(key);
            if cursors.order.len() > MAX_JOBS
                && let Some(oldest) = cursors.order.pop_front()
            {
                cursors.counts.remove(&oldest);
            }
        }
        parts
    }
}

/// `GET /stream/{id}`: the parts since the last request.
pub(super) async fn next(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let Some(job) = app.find(&caller.account, &id).await? else {
        return Ok(reply::failed(&id, JOB_NOT_FOUND));
    };
    if !app.may_stream() {
        return Ok(reply::failed(&id, NOT_A_GENERATOR));
    }
    let from = app.stream_cursors.position(&job);
    let seen = ReadPosition {
        outputs: from,
        logs: usize::MAX,
    };
    let parts = match tokio::time::timeout(HOLD, job.progress(seen)).await {
        Ok(progress) => app.stream_cursors.take(&job, from, progress.outputs),
        Err(_) => Vec::new(),
    };
    let now = job.snapshot_without_output();
    // A client that sees the end does not ask again, so it gets the parts that arrived meanwhile.
    let rest = if now.status.is_terminal() {
        let from = from + parts.len();
        app.stream_cursors.take(
            &job,
            from,
            job.progress(ReadPosition {
                outputs: from,
                logs: usize::MAX,
            })
            .await
            .outputs,
        )
    } else {
        Vec::new()
    };
    Ok(reply::parts(&now, &[parts, rest].concat()))
}

/// `POST /stream/{id}`: waits for the end of the job and returns all parts.
pub(super) async fn all(
    State(app): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let Some(job) = app.find(&caller.account, &id).await? else {
        return Ok(reply::failed(&id, JOB_NOT_FOUND));
    };
    if app.may_stream() {
        job.ended().await;
    }
    // The schema may have become known while the job ran.
    if !app.may_stream() {
        return Ok(reply::failed(&id, NOT_A_GENERATOR));
    }
    let parts = job
        .progress(ReadPosition {
            outputs: 0,
            logs: usize::MAX,
        })
        .await
        .outputs;
    Ok(reply::parts(&job.snapshot_without_output(), &parts))
}

impl AppState {
    /// Whether the handler is a generator, or its kind is not known yet because its script is loading.
    fn may_stream(&self) -> bool {
        self.jobs()
            .schema()
            .is_none_or(|schema| !schema.never_yields)
    }
}
