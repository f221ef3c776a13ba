//! `/stream/{id}`: the parts of a job's output.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::read_cursors::{ReadCursorError, ReadCursors};
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

/// How many parts of each job clients have read. In a cluster the positions are shared by all processes; while that
/// fails, each has its own.
pub(super) struct LocalStreamCursors {
    own: Mutex<CursorCounts>,
    shared: Option<Arc<dyn ReadCursors>>,
}

#[derive(Default)]
struct CursorCounts {
    counts: HashMap<(Account, JobId), usize>,
    order: VecDeque<(Account, JobId)>,
}

impl LocalStreamCursors {
    pub(super) fn new(shared: Option<Arc<dyn ReadCursors>>) -> Self {
        Self {
            own: Mutex::default(),
            shared,
        }
    }

    async fn position(&self, job: &Job) -> usize {
        let own = self.lock().position(job);
        match &self.shared {
            Some(shared) => or_own(shared.position(&key_of(job)).await, own),
            None => own,
        }
    }

    /// Takes the parts that no other request has taken meanwhile.
    async fn take(&self, job: &Job, from: usize, mut parts: Vec<Bytes>) -> Vec<Bytes> {
        let to = from + parts.len();
        let own = self.lock().advance(job, to);
        let known = match &self.shared {
            Some(shared) => or_own(shared.advance(&key_of(job), to as u64).await, own),
            None => own,
        };
        parts.drain(..known.saturating_sub(from).min(parts.len()));
        parts
    }

    fn lock(&self) -> MutexGuard<'_, CursorCounts> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shared position; that of this process if there is none.
fn or_own(shared: Result<u64, ReadCursorError>, own: usize) -> usize {
    match shared {
        Ok(position) => usize::try_from(position).unwrap_or(usize::MAX),
        Err(error) => {
            tracing::warn!(%error, "failed to use the read positions of all processes, parts of streams may be delivered twice");
            own
        }
    }
}

/// The key of the shared position.
fn key_of(job: &Job) -> String {
    format!("{}:{}", job.account().as_str(), job.id())
}

impl CursorCounts {
    fn position(&self, job: &Job) -> usize {
        let key = (job.account().clone(), job.id().clone());
        self.counts.get(&key).copied().unwrap_or_default()
    }

    /// Advances the position to `to`, unless it is further already; returns the position before.
    fn advance(&mut self, job: &Job, to: usize) -> usize {
        let key = (job.account().clone(), job.id().clone());
        let known = self.position(job);
        if self.counts.insert(key.clone(), known.max(to)).is_none() {
            self.order.push_back(key);
            if self.order.len() > MAX_JOBS
                && let Some(oldest) = self.order.pop_front()
            {
                self.counts.remove(&oldest);
            }
        }
        known
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
    let from = app.stream_cursors.position(&job).await;
    let seen = ReadPosition {
        outputs: from,
        logs: usize::MAX,
    };
    let parts = match tokio::time::timeout(HOLD, job.progress(seen)).await {
        Ok(progress) => app.stream_cursors.take(&job, from, progress.outputs).await,
        Err(_) => Vec::new(),
    };
    let now = job.snapshot_without_output();
    // A client that sees the end does not ask again, so it gets the parts that arrived meanwhile.
    let rest = if now.status.is_terminal() {
        let from = from + parts.len();
        let unread = ReadPosition {
            outputs: from,
            logs: usize::MAX,
        };
        let outputs = job.progress(unread).await.outputs;
        app.stream_cursors.take(&job, from, outputs).await
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
