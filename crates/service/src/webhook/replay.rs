//! Replays the terminal message of a job on request. The message keeps its id, so that the receiver
//! can detect a duplicate.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_core::outbox::{MessageFilter, Reopened};
use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId};

use super::WebhookEvent;
use super::delivery_log::{DeliveryRecord, DeliveryState, ReplayHandle};
use super::outgoing_message::OutgoingMessage;
use super::retry::deliver_unrecorded;
use crate::job_service::JobService;
use crate::run_blocking::run_blocking_if_large;

/// Why a message cannot be replayed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplayError {
    /// There is no such message.
    #[error("no webhook with the id `{0}`; it may have been settled too long ago")]
    Unknown(String),
    /// An attempt is in progress.
    #[error("the webhook is being sent right now; check its attempts in a moment")]
    InFlight,
    /// The message is not the terminal one of its job.
    #[error("the webhook reports `{}`; only the terminal webhook of a job (`completed`) can be sent again", .0.name())]
    NotTerminal(WebhookEvent),
    /// The data of the job was removed.
    #[error("the job of the webhook ended too long ago and its data was removed")]
    Gone,
    /// The store failed.
    #[error("the store is unavailable; try again later")]
    Store(#[source] StoreError),
}

impl JobService {
    /// Sends the terminal message of a job again, under the same id. A message that waits for a
    /// retry is sent at once. With an account, only messages about jobs of that account are found.
    pub async fn replay_delivery(
        &self,
        id: &str,
        account: Option<&Account>,
    ) -> Result<(), ReplayError> {
        let logged = self.model.senders.deliveries.find(id);
        let logged =
            logged.filter(|(record, _)| account.is_none_or(|account| record.account == *account));
        match &logged {
            Some((record, _)) if record.state == DeliveryState::Sending => {
                return Err(ReplayError::InFlight);
            }
            Some((record, _)) if record.event != WebhookEvent::Completed => {
                return Err(ReplayError::NotTerminal(record.event));
            }
            Some(_) | None => {}
        }
        if self.replay_stored(id, account).await? {
            return Ok(());
        }
        match logged {
            Some((record, handle)) if record.state == DeliveryState::Retrying => {
                handle.send_now.notify_one();
                Ok(())
            }
            Some((record, handle)) => self.replay_logged(record, &handle),
            None => Err(ReplayError::Unknown(id.to_owned())),
        }
    }

    /// Replays a message of the outbox; returns whether the outbox has it.
    async fn replay_stored(
        &self,
        id: &str,
        account: Option<&Account>,
    ) -> Result<bool, ReplayError> {
        let Some(outbox) = &self.model.senders.outbox else {
            return Ok(false);
        };
        let reopened = outbox
            .store
            .reopen_message(id, account.cloned(), outbox.window())
            .await;
        match reopened.map_err(store_error)? {
            Reopened::Due => {
                outbox.poll_within(Duration::ZERO);
                Ok(true)
            }
            Reopened::Claimed => Err(ReplayError::InFlight),
            Reopened::Unknown => Ok(false),
        }
    }

    fn replay_logged(
        &self,
        record: DeliveryRecord,
        handle: &ReplayHandle,
    ) -> Result<(), ReplayError> {
        // A lookup removes the job from the registry if it has expired.
        self.shared().registry.get(&record.account, &record.job);
        let job = handle.job.upgrade().ok_or(ReplayError::Gone)?;
        let body = run_blocking_if_large(job.weight(), || {
            handle.webhook.renderer.render(&job.snapshot())
        });
        let senders = Arc::clone(&self.model.senders);
        let message = OutgoingMessage::replayed(record.id, &senders, &handle.webhook, &job, body);
        self.model
            .senders
            .tasks
            .spawn(async move { deliver_unrecorded(&senders, &message).await });
        Ok(())
    }

    /// Messages of the store, for those that the log does not have: messages of previous processes
    /// and those evicted from the log. Pending ones first, then the most recently settled.
    pub async fn stored_deliveries(
        &self,
        account: Option<&Account>,
        job: Option<&JobId>,
        limit: usize,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        let Some(store) = self.store() else {
            return Ok(Vec::new());
        };
        let filter = MessageFilter {
            account: account.cloned(),
            job: job.cloned(),
            limit,
        };
        let messages = store.messages(filter).await?;
        Ok(messages.iter().map(Into::into).collect())
    }
}

fn store_error(error: StoreError) -> ReplayError {
    tracing::error!(error = %chain(&error), "failed to look up webhook");
    ReplayError::Store(error)
}
