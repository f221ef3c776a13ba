//! Runs one job without a platform, to test a handler.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::port::Executor;
use tokio_util::sync::CancellationToken;

use crate::codec::{HandlerSemantics, JobCodec};
use crate::delivery::ReportSender;
use crate::execute::{ExecutionContext, PlatformStreaming, RunResult};
use crate::journal::Journal;
use crate::wire::Job;

/// Runs one job and returns the body of its result, or `None` when it was stopped.
pub async fn run_once(
    executor: Arc<dyn Executor>,
    codec: Arc<dyn JobCodec>,
    semantics: HandlerSemantics,
    job: &Job,
    stop: &CancellationToken,
) -> Option<Bytes> {
    let execution = ExecutionContext {
        executor,
        codec,
        semantics,
        journal: Journal::in_memory(),
        parts: PlatformStreaming::Unsupported,
        job_timeout: None,
    };
    match execution
        .execute(job, stop, &ReportSender::disconnected())
        .await
    {
        RunResult::Finished(end) => Some(end.body),
        RunResult::Stopped => None,
    }
}
