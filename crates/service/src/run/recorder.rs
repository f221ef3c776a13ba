//! Records the lease and the end of one job in the store.
//!
//! A job is recorded when its client may ask for it later: it was accepted asynchronously, has an id of
//! the client's, or a webhook. Other jobs exist only while their client is connected.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tidegate_core::chain;
use tidegate_core::lease::{Fence, LeaseDurability, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::planted;
use tidegate_core::port::BoxFuture;
use tidegate_core::record::Completion;
use tidegate_core::store::{FinishOutcome, JobFinish, JobRecords, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Snapshot;
use crate::job::{Job, JobEnd, JobTimes};
use crate::random;
use crate::webhook::{MessageFactory, Webhook, WebhookEvent};

/// The pause after the store rejected the lease or the end of a job.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often the end of a job is retried once the server shuts down.
const MAX_TRIES_WHILE_CLOSING: u32 = 6;

/// Records one running job.
pub(crate) struct JobRecorder {
    records: Arc<dyn JobRecords>,
    /// The webhook, if its receiver wants the last message.
    webhook: Option<Arc<Webhook>>,
    /// Creates the last message.
    messages: Option<MessageFactory>,
    /// The lease of this attempt; before it is granted, the number of the last attempt and the nonce
    /// for the next.
    fence: Fence,
    /// When the model began, once the job is leased.
    began_at: Option<Timestamp>,
    durability: LeaseDurability,
    /// Whether the lease still has to be committed.
    is_uncommitted: bool,
    caller: Caller,
    /// Whether a result that can never be stored is replaced by a failure. The store of this process
    /// accepts what its configuration allows; that of another process may not.
    fails_refused: bool,
    /// Cancelled when the server shuts down.
    closing: CancellationToken,
}

/// Whether a client waits for the job on an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Waiting,
    Detached,
}

/// Whether the recorder of a job may let the model start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseDecision {
    /// The job is leased since this time.
    Start(Timestamp),
    /// The job must end as canceled.
    Cancel,
    /// The job has ended, or another server has its lease.
    NotOurs,
    /// The server shuts down, and the job is left to the next process.
    Leave,
}

/// The result of committing the end of a job.
#[expect(clippy::large_enum_variant, reason = "it exists for a moment")]
pub(crate) enum FinishResult {
    /// This end is committed, with its outbox message if there is a webhook.
    Committed(JobEnd, Option<OutboxMessage>),
    /// The job was already ended by another attempt or another server, and not like this.
    ByAnother(JobEnd),
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
    /// The recorder of a job that was leased `attempt` times before.
    pub(crate) fn new(
        records: Arc<dyn JobRecords>,
        webhook: Option<&Arc<Webhook>>,
        attempt: u32,
        durability: LeaseDurability,
        caller: Caller,
        closing: CancellationToken,
    ) -> Self {
        let webhook = webhook
            .filter(|webhook| webhook.filter.includes(WebhookEvent::Completed))
            .cloned();
        let nonce = Nonce(random::bits());
        Self {
            records,
            webhook,
            messages: None,
            fence: Fence { attempt, nonce },
            began_at: None,
            durability,
            is_uncommitted: false,
            caller,
            fails_refused: false,
            closing,
        }
    }

    /// The recorder of a job that is leased already. Its end is retried without limit, also while the
    /// process shuts down: the result exists nowhere else.
    pub(crate) fn leased(
        records: Arc<dyn JobRecords>,
        webhook: Option<&Arc<Webhook>>,
        fence: Fence,
        began_at: Timestamp,
    ) -> Self {
        let never = CancellationToken::new();
        let durability = LeaseDurability::Machine;
        let recorder = Self::new(records, webhook, 0, durability, Caller::Detached, never);
        Self {
            webhook: webhook.cloned(),
            fence,
            began_at: Some(began_at),
            fails_refused: true,
            ..recorder
        }
    }

    /// Adds what creates the terminal message.
    pub(crate) fn with_messages(self, messages: Option<MessageFactory>) -> Self {
        Self { messages, ..self }
    }

    /// Cancelled when a waiting job is left to the next server process; `None` when a client waits for
    /// the job here.
    pub(crate) fn leave_to_next_server(&self) -> Option<CancellationToken> {
        (self.caller == Caller::Detached).then(|| self.closing.clone())
    }

    /// The first lease of a job that is inserted with it, since `at`.
    pub(crate) fn lease_with_insert(&mut self, job: &Job, at: Timestamp) -> LeaseRequest {
        let request = self.request(job, at, LeaseDurability::Machine);
        self.fence.attempt += 1;
        job.set_own_attempt(self.fence.attempt);
        self.began_at = Some(at);
        request
    }

    /// Leases the job, before the model starts. Repeats the request until the store answers, or until
    /// the server shuts down. A shutdown does not interrupt a request: if it is granted, the job counts as
    /// started, so it has to start. If the caller drops this future, the job has to end: the end is
    /// accepted whether the lease was granted or not.
    pub(crate) async fn lease(&mut self, job: &Job, at: Timestamp) -> LeaseDecision {
        if let Some(began_at) = self.began_at {
            return LeaseDecision::Start(began_at);
        }
        let leave_at = self.leave_to_next_server();
        loop {
            if leave_at.as_ref().is_some_and(|at| at.is_cancelled()) {
                return LeaseDecision::Leave;
            }
            match self
                .records
                .lease(self.request(job, at, self.durability))
                .await
            {
                Ok(LeaseResult::Granted(fence)) => {
                    self.fence = fence;
                    job.set_own_attempt(fence.attempt);
                    self.began_at = Some(at);
                    self.is_uncommitted = self.durability == LeaseDurability::Process;
                    return LeaseDecision::Start(at);
                }
                Ok(LeaseResult::CancelRequested) => return LeaseDecision::Cancel,
                Ok(result) => {
                    tracing::warn!(job = %job.id(), ?result, "the lease of the job was refused");
                    return LeaseDecision::NotOurs;
                }
                Err(error) => {
                    tracing::error!(job = %job.id(), error = %chain(&error), "failed to record start of job, retrying");
                }
            }
            let pause = tokio::time::sleep(RETRY_AFTER);
            match &leave_at {
                Some(leave_at) => drop(leave_at.run_until_cancelled(pause).await),
                None => pause.await,
            }
        }
    }

    /// Whether [`JobRecorder::commit_lease`] has something to do.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.is_uncommitted
    }

    /// Commits a lease that survives only this process. Nothing waits for it: the end of the job
    /// commits the lease too.
    pub(crate) fn commit_lease(&mut self, job: &Job) -> Option<BoxFuture<()>> {
        let began_at = self.began_at.filter(|_| self.is_uncommitted)?;
        self.is_uncommitted = false;
        let request = LeaseRequest {
            after_attempt: self.fence.attempt - 1,
            ..self.request(job, began_at, LeaseDurability::Machine)
        };
        let records = Arc::clone(&self.records);
        Some(Box::pin(async move {
            let id = request.id.clone();
            if let Err(error) = records.lease(request).await {
                tracing::warn!(job = %id, error = %chain(&error), "failed to commit lease of job");
            }
        }))
    }

    fn request(&self, job: &Job, began_at: Timestamp, durability: LeaseDurability) -> LeaseRequest {
        LeaseRequest {
            account: job.account().clone(),
            id: job.id().clone(),
            nonce: self.fence.nonce,
            after_attempt: self.fence.attempt,
            began_at,
            durability,
        }
    }

    /// Commits the end together with its outbox message. If a cancel is recorded, the end becomes
    /// canceled.
    pub(crate) async fn finish(
        &self,
        job: &Job,
        end: JobEnd,
        on_error: OnStoreError,
    ) -> Result<FinishResult, StoreError> {
        let (mut end, mut tries_while_closing, mut is_replaced) = (end, 0, false);
        let mut finish = self.finish_request(job, &end);
        planted!(
            ForgottenCancel,
            if end.status == tidegate_core::Status::Canceled {
                return Ok(FinishResult::Committed(end, finish.message));
            }
        );
        loop {
            match self.records.finish(finish.clone()).await {
                Ok(FinishOutcome::Committed | FinishOutcome::AlreadyCommitted) => {
                    return Ok(FinishResult::Committed(end, finish.message));
                }
                Ok(FinishOutcome::ByAnother) => return Ok(FinishResult::ByAnother(end)),
                Ok(FinishOutcome::CancelRequested) => {
                    end = end.into_canceled();
                    finish = self.finish_request(job, &end);
                    continue;
                }
                Err(StoreError::Invalid(reason)) if self.fails_refused && !is_replaced => {
                    tracing::error!(job = %job.id(), reason, "the result of the job was refused, the job fails");
                    is_replaced = true;
                    end = end.into_failed(format!("the result was not accepted: {reason}"));
                    finish = self.finish_without_result(job, &end);
                    continue;
                }
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

    fn finish_request(&self, job: &Job, end: &JobEnd) -> JobFinish {
        self.finish_with(job, end, job.snapshot_with(end))
    }

    /// The end of a job whose output or logs were refused.
    fn finish_without_result(&self, job: &Job, end: &JobEnd) -> JobFinish {
        let snapshot = Snapshot {
            output: None,
            logs: String::new(),
            ..job.snapshot_with(end)
        };
        self.finish_with(job, end, snapshot)
    }

    fn finish_with(&self, job: &Job, end: &JobEnd, snapshot: Snapshot) -> JobFinish {
        let message = self.last_message(job, &snapshot);
        JobFinish {
            account: job.account().clone(),
            id: job.id().clone(),
            fence: self.fence,
            began_at: self.began_at,
            status: end.status,
            completion: completion(snapshot),
            message,
        }
    }

    /// The terminal message. If the receiver did not subscribe to it, the end of a leased job carries the
    /// newest interim message: interim ones are refused once the job has ended.
    fn last_message(&self, job: &Job, end: &Snapshot) -> Option<OutboxMessage> {
        let (webhook, messages) = self.webhook.as_ref().zip(self.messages.as_ref())?;
        let body = if webhook.filter.includes(WebhookEvent::Completed) {
            webhook.renderer.render(end)
        } else {
            let interim = job.newest_interim(webhook.filter)?;
            webhook.renderer.render(&interim)
        };
        Some(messages.message(webhook, job, body))
    }
}

fn completion(snapshot: Snapshot) -> Completion {
    Completion {
        completed_at: snapshot.completed_at.unwrap_or(snapshot.created_at),
        output: snapshot.output,
        logs: snapshot.logs,
        error: snapshot.error,
        metrics: with_times(snapshot.metrics, snapshot.times),
        remote: snapshot.remote.map(|remote| *remote),
    }
}

/// The model's metrics together with the times of the job, as they are stored.
fn with_times(mut metrics: Map<String, Value>, times: Option<JobTimes>) -> Map<String, Value> {
    if let Some(times) = times {
        times.store(&mut metrics);
    }
    metrics
}
