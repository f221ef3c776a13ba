//! Sending the last message about a job once more, because somebody asks for it. It keeps its id, so a
//! receiver that has seen it can tell.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::store::{Reopened, StoreError};
use tidegate_core::{Account, JobId};

use super::WebhookEvent;
use super::delivery_log::{DeliveryRecord, DeliveryState, ReplayHandle};
use super::outgoing_message::OutgoingMessage;
use super::retry::deliver_unrecorded;
use crate::job_service::JobService;
use crate::run_blocking::run_blocking_if_large;

/// Why a message is not sent once more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplayError {
    /// Nobody knows it.
    #[error("there is no webhook with the id `{0}`, or it was settled too long ago to be kept")]
    Unknown(String),
    /// It is being sent at this moment.
    #[error("it is on its way to the receiver right now; look at its attempts in a mark")]
    InFlight,
    /// It is not the last one about its job.
    #[error("it tells of `{}`, and only the last message of a job (`completed`) is kept and can be sent again", .0.name())]
    NotTerminal(WebhookEvent),
    /// What it says is not known any more.
    #[error("the job that it is about was over too long ago, its data is gone")]
    Gone,
    /// The store cannot say what it knows.
    #[error("the store cannot be used now; try again later")]
    Store(#[source] StoreError),
}

impl JobService {
    /// Sends the last message about a job once more, under the same id; at once if it waits for its next attempt.
    /// With an account, only messages about jobs of that account are known.
    pub async fn replay_delivery(
        &self,
        id: &str,
        account: Option<&Account>,
    ) -> Result<(), ReplayError> {
        let logged = self.model.senders.deliveries.find(id);
        let logged =
            logged.filter(|(record, _)| account.is_none_or(|account| record.account == *account));
        if let Some((record, handle)) = &logged {
            match record.state {
                DeliveryState::Retrying => {
                    handle.send_now.notify_one();
                    return Ok(());
                }
                DeliveryState::Sending => return Err(ReplayError::InFlight),
                DeliveryState::Delivered | DeliveryState::Failed
                    if record.event == WebhookEvent::Completed => {}
                DeliveryState::Delivered | DeliveryState::Failed => {
                    return Err(ReplayError::NotTerminal(record.event));
                }
            }
        }
        if self.replay_stored(id, account).await? {
            return Ok(());
        }
        match logged {
            Some((record, handle)) => self.replay_logged(record, &handle),
            None => Err(ReplayError::Unknown(id.to_owned())),
        }
    }

    /// Whether the store had it.
    async fn replay_stored(
        &self,
        id: &str,
        account: Option<&Account>,
    ) -> Result<bool, ReplayError> {
        let Some(store) = self.store() else {
            return Ok(false);
        };
        let message = store
            .reopen_message(id, account.cloned(), Timestamp::now())
            .await;
        match message.map_err(store_error)? {
            Reopened::Message(message) => {
                self.send_outbox_message(*message);
                Ok(true)
            }
            // It was taken a moment ago, and that is being written down.
            Reopened::StillPending => Err(ReplayError::InFlight),
            Reopened::Unknown => Ok(false),
        }
    }

    fn replay_logged(
        &self,
        record: DeliveryRecord,
        handle: &ReplayHandle,
    ) -> Result<(), ReplayError> {
        // What is too old is forgotten when somebody asks.
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

    /// Messages of servers before this one, and older ones than are logged. The last settled first.
    pub async fn settled_deliveries(
        &self,
        account: Option<&Account>,
        job: Option<&JobId>,
        limit: usize,
    ) -> Result<Vec<DeliveryRecord>, StoreError> {
        let Some(store) = self.store() else {
            return Ok(Vec::new());
        };
        let messages = store
            .settled_messages(account.cloned(), job.cloned(), limit)
            .await?;
        Ok(messages.iter().map(Into::into).collect())
    }
}

fn store_error(error: StoreError) -> ReplayError {
    tracing::error!(error = %chain(&error), "a webhook could not be looked up");
    ReplayError::Store(error)
}
