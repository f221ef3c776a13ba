//! Ends a job: commits the end to the store, acknowledges its queue entry, publishes the end to clients,
//! and sends the terminal webhook. Every job that ends, ends here.

use std::sync::Arc;

use tidegate_core::chain;
use tidegate_core::store::StoreError;

use super::recorder::{FinishResult, JobRecorder, OnStoreError};
use crate::job::{Job, JobEnd};
use crate::job_service::JobService;
use crate::waiting::claims::ClaimGuard;
use crate::webhook::WebhookSender;

/// The result of one run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The end of this run is committed.
    Committed,
    /// The job was ended by another run, or has a later lease: the result does not count.
    ByAnother,
    /// The run was left without an end, or never started: the job is open.
    Left,
}

/// A job with a decided end.
pub(crate) struct EndedJob {
    pub(crate) job: Arc<Job>,
    pub(crate) end: JobEnd,
    /// Absent for jobs that exist in memory only.
    pub(crate) recorder: Option<JobRecorder>,
    /// The queue entry of the job, if it was queued.
    pub(crate) claim: Option<ClaimGuard>,
    pub(crate) webhook: TerminalWebhook,
    pub(crate) on_error: OnStoreError,
}

/// Who sends the terminal webhook of a job.
pub(crate) enum TerminalWebhook {
    /// The sender task that sent the interim messages, if there is a webhook.
    Sender(Option<WebhookSender>),
    /// A new task that sends the outbox message: the job had no sender task.
    Outbox,
}

impl JobService {
    /// Ends a job. The end is committed before clients see it. Returns an error only with
    /// [`OnStoreError::Return`]; the end is then neither committed nor published.
    pub(crate) async fn finish_job(&self, ended: EndedJob) -> Result<RunOutcome, StoreError> {
        let EndedJob {
            job,
            end,
            recorder,
            claim,
            webhook,
            on_error,
        } = ended;
        let result = match recorder {
            None => FinishResult::Committed(end, None),
            Some(recorder) => recorder.finish(&job, end, on_error).await?,
        };
        let registry = &self.shared().registry;
        let (end, message) = match result {
            FinishResult::Committed(end, message) => (end, message),
            FinishResult::ByAnother(end) => {
                self.publish_recorded_end(&job, claim, end).await;
                return Ok(RunOutcome::ByAnother);
            }
            FinishResult::Abandoned => {
                registry.forget(&job);
                return Ok(RunOutcome::Left);
            }
        };
        // Before the id can be used again.
        acknowledge(claim).await;
        self.model
            .metrics
            .finished(job.api(), job.kind(), end.status, end.run_time);
        job.end(end);
        registry.retire(&job);
        match webhook {
            TerminalWebhook::Sender(Some(sender)) => sender.completed(message),
            TerminalWebhook::Sender(None) => {}
            TerminalWebhook::Outbox => {
                let senders = &self.model.senders;
                if let Some((outbox, message)) = senders.outbox.as_ref().zip(message) {
                    outbox.spawn_committed(senders, message);
                }
            }
        }
        Ok(RunOutcome::Committed)
    }

    /// Publishes the end of a job that another attempt or another server has recorded. Clients that
    /// wait for the job here get `end` if there is no such record. A job that is open in the store
    /// stays in the queue: its lease decides who runs it. So does one whose record cannot be read: upkeep
    /// reads it later.
    pub(crate) async fn publish_recorded_end(
        &self,
        job: &Arc<Job>,
        claim: Option<ClaimGuard>,
        end: JobEnd,
    ) {
        // Lookups read the record from now on.
        self.shared().registry.forget(job);
        let recorded = match self.store() {
            Some(store) => store.get(job.account(), job.id()).await,
            None => Ok(None),
        };
        match recorded {
            Ok(Some(record)) if record.status.is_terminal() => {
                acknowledge(claim).await;
                job.adopt_end(record);
            }
            Ok(Some(_)) => job.end(end),
            Ok(None) => {
                acknowledge(claim).await;
                job.end(end);
            }
            Err(error) => {
                tracing::error!(job = %job.id(), error = %chain(&error), "failed to read recorded end of job");
                job.end(end);
            }
        }
    }
}

async fn acknowledge(claim: Option<ClaimGuard>) {
    if let Some(claim) = claim {
        claim.ack().await;
    }
}
