//! `GET /health`: the number of jobs and workers, in the format of Runpod's cloud.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidegate_core::Status;
use tidegate_core::pool_status::{PoolStatus, ProcessState};

use super::AppState;
use crate::shared::response::json;

#[derive(Serialize)]
struct LocalHealth {
    jobs: LocalJobCounts,
    workers: ChildCounts,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LocalJobCounts {
    completed: u64,
    failed: u64,
    in_progress: usize,
    in_queue: usize,
    /// Always 0: only a platform gives a job to another worker.
    retried: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct ChildCounts {
    idle: usize,
    initializing: usize,
    ready: usize,
    running: usize,
    throttled: usize,
    unhealthy: usize,
}

pub(super) async fn health(State(app): State<Arc<AppState>>) -> Response {
    let jobs = app.jobs();
    let ended = |wanted| {
        jobs.metrics()
            .finished_jobs()
            .filter(|(_, _, status, _)| *status == wanted)
            .map(|(.., count)| count)
            .sum()
    };
    let queue = jobs.queue().total;
    let health = LocalHealth {
        jobs: LocalJobCounts {
            completed: ended(Status::Succeeded),
            failed: ended(Status::Failed),
            in_progress: queue.running,
            in_queue: queue.waiting,
            retried: 0,
        },
        workers: workers(&jobs.pool_status()),
    };
    json(
        StatusCode::OK,
        serde_json::to_vec(&health)
            .expect("the keys are strings")
            .into(),
    )
}

fn workers(pool: &PoolStatus) -> ChildCounts {
    let mut workers = ChildCounts::default();
    for child in &pool.children {
        match child.state {
            ProcessState::Starting => workers.initializing += 1,
            ProcessState::Ready if child.jobs > 0 => workers.running += 1,
            ProcessState::Ready => workers.idle += 1,
            ProcessState::SetupFailed | ProcessState::Defunct => workers.unhealthy += 1,
        }
    }
    workers.ready = workers.idle + workers.running;
    workers
}
