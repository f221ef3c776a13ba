//! What is written down about a job, so that it outlives this process.
//!
//! A job is kept when somebody may come back for it: it was accepted for later, has an id of the
//! caller's, or a webhook. The others live and die with the caller on the line.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::planted::{Planted, planted};
use tidegate_core::record::{Completion, OutboxMessage};
use tidegate_core::store::{JobFinish, Store, StoreError};
use tidegate_core::{Status, chain};
use tokio_util::sync::CancellationToken;

use crate::Snapshot;
use crate::job::{Job, JobEnd, PREDICT_TIME};
use crate::webhook::{Webhook, WebhookEvent, message_id};

/// The pause after the store could not take the end of a job.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often the end of a job is tried once the server is on its way out.
const MAX_TRIES_WHILE_CLOSING: u32 = 6;

/// The record of one running job.
pub(crate) struct JobRecorder {
    store: Arc<dyn Store>,
    /// Who wants to hear of the end, and in which words.
    webhook: Option<Arc<Webhook>>,
    /// The note that the model has begun, on its way; it comes to the number of this attempt.
    begun: Option<BoxFuture<'static, Result<Option<u32>, StoreError>>>,
    attempt: u32,
    begin_write: BeginWrite,
    /// When the model began, as long as that is not on its way to the store.
    unrecorded_begin: Option<Timestamp>,
    /// Whether nobody waits for it: then it may stay in the line until another server takes it up.
    waits: Caller,
    /// The server is on its way out.
    closing: CancellationToken,
}

/// When it is noted that the model has begun with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeginWrite {
    /// At once: who has begun must not be begun again.
    Immediate,
    /// After a moment. Most jobs are over by then, and one commit notes both.
    Deferred,
}

/// Whether somebody is on the line for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Waiting,
    Detached,
}

impl JobRecorder {
    /// The record of a job that was given to a model `attempt` times before.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        webhook: Option<&Arc<Webhook>>,
        attempt: u32,
        begin_write: BeginWrite,
        waits: Caller,
        closing: CancellationToken,
    ) -> Self {
        let webhook = webhook
            .filter(|webhook| webhook.filter.wants(WebhookEvent::Completed))
            .cloned();
        Self {
            store,
            webhook,
            begun: None,
            attempt,
            begin_write,
            unrecorded_begin: None,
            waits,
            closing,
        }
    }

    /// When the job may be left in the line: nobody waits for it, so another server can take it up.
    pub(crate) fn leave_to_next_server(&self) -> Option<CancellationToken> {
        (self.waits == Caller::Detached).then(|| self.closing.clone())
    }

    /// The model is about to begin. A job that must not be begun twice waits here until that is noted; for
    /// the others a lost note means that they are taken for jobs that had not begun. Says whether
    /// [`JobRecorder::note`] is to be called a moment later.
    pub(crate) async fn begin(&mut self, job: &Job, at: Timestamp) -> BeginWrite {
        self.unrecorded_begin = Some(at);
        if self.begin_write == BeginWrite::Immediate {
            self.write_begin(job);
            if let Some(begun) = self.begun.take() {
                self.begun = Some(std::future::ready(begun.await).boxed());
            }
        }
        self.begin_write
    }

    /// Notes that the model has begun.
    pub(crate) fn write_begin(&mut self, job: &Job) {
        let Some(at) = self.unrecorded_begin.take() else {
            return;
        };
        let (store, account, id) = (
            Arc::clone(&self.store),
            job.account().clone(),
            job.id().clone(),
        );
        let mut begun = async move { store.begin(&account, &id, at).await }.boxed();
        // Once, so that it is on its way before the end is; the answer is asked for then.
        match begun.as_mut().now_or_never() {
            Some(answer) => self.begun = Some(std::future::ready(answer).boxed()),
            None => self.begun = Some(begun),
        }
    }

    /// Writes the end down, with the message about it; comes back when both are safe.
    pub(crate) async fn finish(mut self, job: &Job, end: &JobEnd) -> FinishResult {
        let then = job.snapshot_with(end);
        if let Some(begun) = self.begun.take() {
            match begun.await {
                Ok(attempt) => self.attempt = attempt.unwrap_or(self.attempt),
                Err(error) => {
                    tracing::warn!(job = %job.id(), error = %chain(&error), "the begin of a job could not be written down")
                }
            }
        }
        let message = self
            .webhook
            .as_ref()
            .map(|webhook| message(webhook, job, &then));
        let completion = Completion {
            completed_at: then.completed_at.unwrap_or(then.created_at),
            output: then.output,
            logs: then.logs,
            error: then.error,
            metrics: with_time(then.metrics, then.predict_time),
        };
        if planted(Planted::ForgottenCancel) && end.status == Status::Canceled {
            return FinishResult::Committed(message);
        }
        let mut tries_while_closing = 0;
        loop {
            let finish = JobFinish {
                account: job.account().clone(),
                id: job.id().clone(),
                attempt: self.attempt,
                began_at: self.unrecorded_begin,
                status: end.status,
                completion: completion.clone(),
                letter: message.clone(),
            };
            match self.store.finish(finish).await {
                Ok(true) => return FinishResult::Committed(message),
                Ok(false) => return FinishResult::ByAnother,
                Err(error) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "the end of a job cannot be written down yet")
                }
            }
            if self.closing.is_cancelled() {
                tries_while_closing += 1;
                if tries_while_closing > MAX_TRIES_WHILE_CLOSING {
                    return FinishResult::Abandoned;
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

/// What became of the end of a job.
#[expect(clippy::large_enum_variant, reason = "there is one for a mark")]
pub(crate) enum FinishResult {
    /// It is written down, with the message about it if somebody wants one.
    Committed(Option<OutboxMessage>),
    /// Somebody else has ended the job, and tells.
    ByAnother,
    /// The server goes before the store could take it: the next one finds the job unfinished.
    Abandoned,
}

/// What the model noted and how long it took, as they are written down.
fn with_time(mut metrics: Map<String, Value>, predict_time: Option<f64>) -> Map<String, Value> {
    metrics.extend(predict_time.map(|seconds| (PREDICT_TIME.to_owned(), seconds.into())));
    metrics
}

/// The message about the end of a job. The body is a picture of it as it will be then.
pub(crate) fn message(webhook: &Webhook, job: &Job, then: &Snapshot) -> OutboxMessage {
    let now = Timestamp::now();
    OutboxMessage {
        id: message_id(),
        account: job.account().clone(),
        job: job.id().clone(),
        model: job.target().model.clone(),
        hook: webhook.to_hook(),
        body: webhook.renderer.write(then),
        created_at: now,
        attempts: 0,
        next_at: now,
    }
}
