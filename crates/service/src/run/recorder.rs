//! Records the begin and the end of one job in the store.
//!
//! A job is recorded when its client may ask for it later: it was accepted asynchronously, has an id of
//! the client's, or a webhook. Other jobs exist only while their client is connected.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::chain;
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::planted;
use tidegate_core::record::Completion;
use tidegate_core::store::{JobFinish, Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Snapshot;
use crate::job::{Job, JobEnd, PREDICT_TIME};
use crate::webhook::{Outbox, Webhook, WebhookEvent};

/// The pause after the store rejected the end of a job.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often the end of a job is retried once the server shuts down.
const MAX_TRIES_WHILE_CLOSING: u32 = 6;

/// Records one running job.
pub(crate) struct JobRecorder {
    store: Arc<dyn Store>,
    /// The webhook, if its receiver wants the terminal message.
    webhook: Option<Arc<Webhook>>,
    outbox: Option<Arc<Outbox>>,
    /// The write of the begin, in flight; it resolves to the number of this attempt.
    begin: Option<BoxFuture<'static, Result<Option<u32>, StoreError>>>,
    attempt: u32,
    begin_write: BeginWrite,
    /// When the model began, until that is being written.
    unwritten_begin: Option<Timestamp>,
    caller: Caller,
    /// Cancelled when the server shuts down.
    closing: CancellationToken,
}

/// When the begin of a job is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeginWrite {
    /// Before the model starts: the job must not start twice.
    Immediate,
    /// After a moment. Most jobs have ended by then, and one commit records begin and end.
    Deferred,
}

/// Whether a client waits for the job on an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Waiting,
    Detached,
}

/// The result of committing the end of a job.
#[expect(clippy::large_enum_variant, reason = "it exists for a moment")]
pub(crate) enum FinishResult {
    /// The end is committed, with its outbox message if there is a webhook.
    Committed(Option<OutboxMessage>),
    /// The job was already ended by another attempt or another server.
    ByAnother,
    /// The server shuts down before the store accepted the end: the next process finds the job open.
    Abandoned,
}

/// What to do while the store rejects the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStoreError {
    /// Retry until the store accepts it or the server shuts down.
    Retry,
    /// Return the error.
    Return,
}

impl JobRecorder {
    /// The recorder of a job that was started `attempt` times before.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        webhook: Option<&Arc<Webhook>>,
        attempt: u32,
        begin_write: BeginWrite,
        caller: Caller,
        closing: CancellationToken,
    ) -> Self {
        let webhook = webhook
            .filter(|webhook| webhook.filter.includes(WebhookEvent::Completed))
            .cloned();
        Self {
            store,
            webhook,
            outbox: None,
            begin: None,
            attempt,
            begin_write,
            unwritten_begin: None,
            caller,
            closing,
        }
    }

    /// Adds the outbox, for the terminal message.
    pub(crate) fn with_outbox(self, outbox: Option<Arc<Outbox>>) -> Self {
        Self { outbox, ..self }
    }

    /// Cancelled when a waiting job is left to the next server process; `None` when a client waits for
    /// the job here.
    pub(crate) fn leave_to_next_server(&self) -> Option<CancellationToken> {
        (self.caller == Caller::Detached).then(|| self.closing.clone())
    }

    /// The model is about to begin. With [`BeginWrite::Immediate`] this waits until that is recorded;
    /// otherwise the caller calls [`JobRecorder::write_begin`] a moment later. A begin that is lost
    /// means that the job counts as not started.
    pub(crate) async fn begin(&mut self, job: &Job, at: Timestamp) -> BeginWrite {
        self.unwritten_begin = Some(at);
        if self.begin_write == BeginWrite::Immediate {
            self.write_begin(job);
            if let Some(begin) = self.begin.take() {
                self.begin = Some(std::future::ready(begin.await).boxed());
            }
        }
        self.begin_write
    }

    /// Starts to write that the model has begun.
    pub(crate) fn write_begin(&mut self, job: &Job) {
        let Some(at) = self.unwritten_begin.take() else {
            return;
        };
        let (store, account, id) = (
            Arc::clone(&self.store),
            job.account().clone(),
            job.id().clone(),
        );
        let mut begin = async move { store.begin(&account, &id, at).await }.boxed();
        // Polled once, so that it reaches the store before the end does. `finish` awaits the result.
        match begin.as_mut().now_or_never() {
            Some(result) => self.begin = Some(std::future::ready(result).boxed()),
            None => self.begin = Some(begin),
        }
    }

    /// Commits the end together with its outbox message.
    pub(crate) async fn finish(
        mut self,
        job: &Job,
        end: &JobEnd,
        on_error: OnStoreError,
    ) -> Result<FinishResult, StoreError> {
        let snapshot = job.snapshot_with(end);
        self.await_begin(job).await;
        let message = self
            .webhook
            .as_ref()
            .zip(self.outbox.as_ref())
            .map(|(webhook, outbox)| outbox.message(webhook, job, &snapshot));
        planted!(
            ForgottenCancel,
            if end.status == tidegate_core::Status::Canceled {
                return Ok(FinishResult::Committed(message));
            }
        );
        let finish = JobFinish {
            account: job.account().clone(),
            id: job.id().clone(),
            attempt: self.attempt,
            began_at: self.unwritten_begin,
            status: end.status,
            completion: completion(snapshot),
            message: message.clone(),
        };
        let mut tries_while_closing = 0;
        loop {
            match self.store.finish(finish.clone()).await {
                Ok(true) => return Ok(FinishResult::Committed(message)),
                Ok(false) => return Ok(FinishResult::ByAnother),
                Err(error) if on_error == OnStoreError::Return => return Err(error),
                Err(error) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "failed to record end of job, retrying");
                }
            }
            if self.closing.is_cancelled() {
                tries_while_closing += 1;
                if tries_while_closing > MAX_TRIES_WHILE_CLOSING {
                    return Ok(FinishResult::Abandoned);
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    async fn await_begin(&mut self, job: &Job) {
        let Some(begin) = self.begin.take() else {
            return;
        };
        match begin.await {
            Ok(attempt) => self.attempt = attempt.unwrap_or(self.attempt),
            Err(error) => {
                tracing::warn!(job = %job.id(), error = %chain(&error), "failed to record begin of job");
            }
        }
    }
}

fn completion(snapshot: Snapshot) -> Completion {
    Completion {
        completed_at: snapshot.completed_at.unwrap_or(snapshot.created_at),
        output: snapshot.output,
        logs: snapshot.logs,
        error: snapshot.error,
        metrics: with_predict_time(snapshot.metrics, snapshot.predict_time),
        remote: snapshot.remote.map(|remote| *remote),
    }
}

/// The model's metrics together with how long the job took, as they are stored.
fn with_predict_time(
    mut metrics: Map<String, Value>,
    predict_time: Option<f64>,
) -> Map<String, Value> {
    metrics.extend(predict_time.map(|seconds| (PREDICT_TIME.to_owned(), seconds.into())));
    metrics
}
