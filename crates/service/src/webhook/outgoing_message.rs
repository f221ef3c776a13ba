//! One webhook message: the same id and body for all attempts, a new timestamp and signature for
//! each.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::clock;
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::{Account, JobId, chain};
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidegate_net::{Error, WebhookResponse, host_of};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery_log::{Attempt, DeliveryRecord, DeliveryState, ReplayHandle};
use super::{SenderDeps, Webhook, WebhookEvent, message_id};
use crate::Job;
use crate::metrics::AttemptResult;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A webhook message that is being sent.
pub(super) struct OutgoingMessage {
    deps: Arc<SenderDeps>,
    webhook: Arc<Webhook>,
    account: Account,
    job: JobId,
    id: String,
    body: Bytes,
    /// Its number in the delivery log.
    record: u64,
    /// Notified to send the next attempt without waiting.
    pub(super) send_now: Arc<Notify>,
}

/// The result of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendVerdict {
    /// The receiver accepted the message.
    Delivered,
    /// The attempt failed and may be repeated.
    Later { retry_after: Option<Duration> },
    /// Further attempts are useless.
    Never(&'static str),
}

impl OutgoingMessage {
    pub(super) fn new(
        deps: &Arc<SenderDeps>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        event: WebhookEvent,
        body: Bytes,
    ) -> Self {
        Self::with_id(message_id(), deps, webhook, job, event, body)
    }

    /// The terminal message of a job, sent again under its old id.
    pub(super) fn replayed(
        id: String,
        deps: &Arc<SenderDeps>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        body: Bytes,
    ) -> Self {
        Self::with_id(id, deps, webhook, job, WebhookEvent::Completed, body)
    }

    /// A message of the outbox.
    pub(super) fn from_outbox(
        deps: &Arc<SenderDeps>,
        webhook: &Arc<Webhook>,
        message: OutboxMessage,
    ) -> Self {
        let record = delivery_record(
            message.id,
            (&message.account, &message.job, &message.model),
            WebhookEvent::Completed,
            webhook,
        );
        let record = DeliveryRecord {
            created_at: message.created_at,
            earlier_attempts: message.attempts,
            state: if message.attempts == 0 {
                DeliveryState::Sending
            } else {
                DeliveryState::Retrying
            },
            ..record
        };
        // A replay reads the message from the store, so the job is not needed.
        Self::open(deps, webhook, record, Weak::new(), message.body)
    }

    fn with_id(
        id: String,
        deps: &Arc<SenderDeps>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        event: WebhookEvent,
        body: Bytes,
    ) -> Self {
        let record = delivery_record(
            id,
            (job.account(), job.id(), &job.target().model),
            event,
            webhook,
        );
        Self::open(deps, webhook, record, Arc::downgrade(job), body)
    }

    fn open(
        deps: &Arc<SenderDeps>,
        webhook: &Arc<Webhook>,
        record: DeliveryRecord,
        job: Weak<Job>,
        body: Bytes,
    ) -> Self {
        let send_now = Arc::new(Notify::new());
        let (id, job_id, account) = (
            record.id.clone(),
            record.job.clone(),
            record.account.clone(),
        );
        let handle = ReplayHandle {
            job,
            webhook: Arc::clone(webhook),
            send_now: Arc::clone(&send_now),
        };
        let record = deps.deliveries.open(record, handle);
        Self {
            deps: Arc::clone(deps),
            webhook: Arc::clone(webhook),
            account,
            job: job_id,
            id,
            body,
            record,
            send_now,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Makes one attempt and adds it to the delivery log.
    pub(super) async fn send(&self) -> SendVerdict {
        let (at, started) = (clock::now(), Instant::now());
        let sent = self
            .deps
            .net
            .post(&self.webhook.url, self.headers(at), self.body.clone())
            .await;
        let result = match &sent {
            Ok(response) => Ok(response.status),
            Err(error) => Err(chain(error).to_string()),
        };
        self.deps.deliveries.change(self.record, |record| {
            record.attempted(Attempt {
                at,
                took: started.elapsed(),
                result,
            })
        });
        let verdict = verdict(&sent);
        self.deps
            .metrics
            .attempted(attempt_result(&sent), started.elapsed());
        match (&sent, verdict) {
            (_, SendVerdict::Delivered) => {}
            (Ok(response), _) => {
                tracing::warn!(job = %self.job, message = self.id, status = response.status, "webhook rejected")
            }
            (Err(error), _) => {
                tracing::warn!(job = %self.job, message = self.id, error = %chain(error), "failed to deliver webhook")
            }
        }
        verdict
    }

    /// Marks the delivery as successful.
    pub(super) fn delivered(&self) {
        self.change(|record| record.settle(DeliveryState::Delivered, None));
    }

    /// Adds the time of the next attempt to the delivery log.
    pub(super) fn set_next_attempt(&self, pause: Duration) {
        let at = clock::now().checked_add(pause).ok();
        self.change(|record| {
            record.state = DeliveryState::Retrying;
            record.next_attempt_at = at;
        });
    }

    /// Marks the delivery as failed.
    pub(super) fn give_up(&self, why: &str) {
        self.change(|record| record.settle(DeliveryState::Failed, Some(why)));
    }

    /// Marks the delivery of a terminal message as failed, counts it and logs an error.
    pub(super) fn fail(&self, why: &str) {
        self.give_up(why);
        self.deps.metrics.given_up.inc();
        tracing::error!(job = %self.job, message = self.id, host = host_of(&self.webhook.url), why, "gave up on webhook");
    }

    fn change(&self, change: impl FnOnce(&mut DeliveryRecord)) {
        self.deps.deliveries.change(self.record, change);
    }

    fn headers(&self, now: Timestamp) -> HeaderMap {
        let mut headers = self.webhook.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(mut value)) = self
            .deps
            .token
            .as_ref()
            .map(|token| HeaderValue::from_str(&format!("Bearer {token}")))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let timestamp = now.as_second();
        headers.insert(TIMESTAMP, HeaderValue::from(timestamp));
        let signature = self
            .deps
            .secrets
            .sign(&self.account, &self.id, timestamp, &self.body);
        for (name, text) in [
            (ID, Some(self.id.as_str())),
            (SIGNATURE, signature.as_deref()),
        ] {
            if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

fn delivery_record(
    id: String,
    (account, job, model): (&Account, &JobId, &str),
    event: WebhookEvent,
    webhook: &Webhook,
) -> DeliveryRecord {
    DeliveryRecord {
        id,
        account: account.clone(),
        job: job.clone(),
        model: model.to_owned(),
        event,
        host: host_of(&webhook.url),
        created_at: clock::now(),
        state: DeliveryState::Sending,
        given_up: None,
        earlier_attempts: 0,
        attempts: Vec::new(),
        next_attempt_at: None,
    }
}

fn attempt_result(sent: &Result<WebhookResponse, Error>) -> AttemptResult {
    match sent {
        Ok(response) if response.is_success() => AttemptResult::Delivered,
        Ok(_) => AttemptResult::Rejected,
        Err(error) if error.is_refusal() => AttemptResult::NotAllowed,
        Err(_) => AttemptResult::NoAnswer,
    }
}

fn verdict(sent: &Result<WebhookResponse, Error>) -> SendVerdict {
    match sent {
        Ok(response) if response.is_success() => SendVerdict::Delivered,
        Ok(WebhookResponse { status: 410, .. }) => {
            SendVerdict::Never("the receiver responded 410 Gone")
        }
        Ok(response) => SendVerdict::Later {
            retry_after: response.retry_after,
        },
        Err(error) if error.is_refusal() => {
            SendVerdict::Never("the address is not public and not allowed")
        }
        Err(_) => SendVerdict::Later { retry_after: None },
    }
}
