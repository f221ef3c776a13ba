//! The GPUs of the machine and the processes that use them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tidegate_core::gpu::GpuSource;

use super::{JobServices, reply};
use crate::gpus::{self, GpusDocument};

/// What the route reads.
#[derive(Clone)]
pub(super) struct GpuRouteState {
    pub(super) job_services: JobServices,
    pub(super) gpus: Arc<dyn GpuSource>,
}

/// `GET /admin/gpus`
pub(super) async fn list(State(state): State<GpuRouteState>) -> Response {
    // Reading /proc blocks.
    let read = move || {
        let usage = gpus::of_services(&state.gpus, &(state.job_services)());
        GpusDocument::new(&state.gpus.report(), usage)
    };
    match tokio::task::spawn_blocking(read).await {
        Ok(document) => reply::ok(&document),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
