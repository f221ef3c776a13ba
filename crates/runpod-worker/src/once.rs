//! One job without a platform, to try a handler.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::port::Executor;
use tokio_util::sync::CancellationToken;

use crate::delivery::Mouth;
use crate::journal::Journal;
use crate::labour::{Came, Labour, SaidParts};
use crate::port::{Habits, Porter};
use crate::wire::Job;

/// Runs one job; gives the body that a platform would get, or nothing when it was stopped.
pub async fn once(
    executor: Arc<dyn Executor>,
    porter: Arc<dyn Porter>,
    habits: Habits,
    job: &Job,
    stop: &CancellationToken,
) -> Option<Bytes> {
    let labour = Labour {
        executor,
        porter,
        habits,
        journal: Journal::in_memory(),
        parts: SaidParts::AtTheEnd,
        job_timeout: None,
    };
    match labour.work(job, stop, &Mouth::unheard()).await {
        Came::Out(end) => Some(end.body),
        Came::Stopped => None,
    }
}
