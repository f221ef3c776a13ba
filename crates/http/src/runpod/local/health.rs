//! `GET /health`: jobs and workers in numbers, as Runpod's cloud gives them for an endpoint.

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
struct Health {
    jobs: Jobs,
    workers: Workers,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Jobs {
    completed: u64,
    failed: u64,
    in_progress: usize,
    in_queue: usize,
    /// Only a platform gives a job to another worker.
    retried: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Workers {
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
    let queue = jobs.queue().all;
    let health = Health {
        jobs: Jobs {
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
            .expect("it has string keys")
            .into(),
    )
}

fn workers(crew: &PoolStatus) -> Workers {
    let mut workers = Workers::default();
    for child in &crew.children {
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
