//! Answers several calls of a director in one request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::director_api::{
    BatchedCall, BatchedReply, CallBatch, CallBatchReply, LeaseReply,
};
use tokio::time::{Instant, timeout_at};

use super::{CallError, DirectorCalls};

/// How long a batch waits for its slowest call. That call is completed all the same, and the director repeats it.
const BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// The largest input of a reply in a batch. The director asks for a larger one alone.
const MAX_BATCHED_INPUT: usize = 64 * 1024;

impl DirectorCalls {
    /// Answers the calls at the same time.
    pub async fn batch(self: Arc<Self>, batch: CallBatch) -> Result<CallBatchReply, CallError> {
        let until = Instant::now() + BATCH_TIMEOUT;
        let replies = batch.calls.into_iter().map(|call| {
            let calls = Arc::clone(&self);
            let answer = self.complete(async move { calls.answer(call).await });
            async move { timeout_at(until, answer).await.ok()?.ok()? }
        });
        Ok(CallBatchReply {
            replies: join_all(replies).await,
        })
    }

    async fn answer(&self, call: BatchedCall) -> Result<Option<BatchedReply>, CallError> {
        Ok(match call {
            BatchedCall::Lease(call) => {
                let reply = self.lease(call).await?;
                (!is_large(&reply)).then_some(BatchedReply::Lease(reply))
            }
            BatchedCall::Finish(call) => Some(BatchedReply::Finish(self.finish(*call).await?)),
        })
    }
}

fn is_large(reply: &LeaseReply) -> bool {
    match reply {
        LeaseReply::Granted(leased) => leased.spec.input.len() > MAX_BATCHED_INPUT,
        LeaseReply::HeldByAnother | LeaseReply::Over | LeaseReply::Superseded => false,
    }
}
