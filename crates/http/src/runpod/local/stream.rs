//! The output of a job, part by part.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::{Account, JobId};
use tidegate_service::{Job, ReadPosition};

use super::jobs::UNKNOWN;
use super::reply;
use super::{AppState, SharedState};
use crate::access::Identity;

/// How long `GET` waits for something new: clients ask again at once, and give up after ten seconds.
const HOLD: Duration = Duration::from_secs(1);
/// Of so many jobs is remembered what was given.
const REMEMBERED: usize = 4096;

const NO_GENERATOR: &str = "Stream not supported, handler must be a generator.";

/// How many parts of each job were given.
#[derive(Default)]
pub(super) struct Given(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    counts: HashMap<(Account, JobId), usize>,
    order: VecDeque<(Account, JobId)>,
}

impl Given {
    fn of(&self, job: &Job) -> usize {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory
            .counts
            .get(&(job.account().clone(), job.id().clone()))
            .copied()
            .unwrap_or_default()
    }

    /// Takes the parts that nobody else has taken since.
    fn take(&self, job: &Job, from: usize, mut parts: Vec<Bytes>) -> Vec<Bytes> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (job.account().clone(), job.id().clone());
        let known = memory.counts.get(&key).copied();
        parts.drain(
            ..known
                .unwrap_or_default()
                .saturating_sub(from)
                .min(parts.len()),
        );
        let given = known.unwrap_or_default().max(from) + parts.len();
        if memory.counts.insert(key.clone(), given).is_none() {
            memory.order.push_back(key);
            if memory.order.len() > REMEMBERED
                && let Some(oldest) = memory.order.pop_front()
            {
                memory.counts.remove(&oldest);
            }
        }
        parts
    }
}

/// `GET /stream/{id}`: what has come since the last time.
pub(super) async fn next(
    State(app): State<SharedState>,
    caller: Identity,
    Path(id): Path<String>,
) -> Response {
    let Some(job) = app.find(&caller.account, &id).await else {
        return reply::failed(&id, UNKNOWN);
    };
    if !app.may_stream() {
        return reply::failed(&id, NO_GENERATOR);
    }
    let from = app.given.of(&job);
    let seen = ReadPosition {
        outputs: from,
        logs: usize::MAX,
    };
    let parts = match tokio::time::timeout(HOLD, job.progress(seen)).await {
        Ok(progress) => app.given.take(&job, from, progress.outputs),
        Err(_) => Vec::new(),
    };
    let now = job.snapshot();
    // More may have come since: a client that hears of the end does not ask again.
    let rest = if now.status.is_terminal() {
        let from = from + parts.len();
        app.given.take(
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
    reply::parts(&now, &[parts, rest].concat())
}

/// `POST /stream/{id}`: everything, when the job is over.
pub(super) async fn all(
    State(app): State<SharedState>,
    caller: Identity,
    Path(id): Path<String>,
) -> Response {
    let Some(job) = app.find(&caller.account, &id).await else {
        return reply::failed(&id, UNKNOWN);
    };
    if app.may_stream() {
        job.ended().await;
    }
    // It may have become known while the job ran.
    if !app.may_stream() {
        return reply::failed(&id, NO_GENERATOR);
    }
    let parts = job
        .progress(ReadPosition {
            outputs: 0,
            logs: usize::MAX,
        })
        .await
        .outputs;
    reply::parts(&job.snapshot(), &parts)
}

impl AppState {
    /// Whether the handler is a generator, or may still turn out to be one: its script has to run first.
    fn may_stream(&self) -> bool {
        self.jobs().schema().is_none_or(|schema| !schema.returns)
    }
}
