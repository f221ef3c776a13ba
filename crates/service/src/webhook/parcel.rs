//! One message on its way: the same id and body over all attempts, a fresh time and signature for each.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::record::OutboxMessage;
use tidegate_core::{Account, JobId, chain};
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidegate_net::{Error, WebhookResponse, host_of};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::deliveries::{Attempt, DeliveryRecord, DeliveryState, Handle};
use super::{SenderTools, Webhook, WebhookEvent, message_id};
use crate::Job;
use crate::meter::AttemptResult;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// One message.
pub(super) struct Parcel {
    tools: Arc<SenderTools>,
    webhook: Arc<Webhook>,
    account: Account,
    job: JobId,
    id: String,
    body: Bytes,
    /// Its place among the deliveries.
    record: u64,
    /// Somebody does not want to wait for the next attempt.
    pub(super) hurry: Arc<Notify>,
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The receiver took it.
    Delivered,
    /// It may be taken later.
    Later { retry_after: Option<Duration> },
    /// It will never be taken.
    Never(&'static str),
}

impl Parcel {
    pub(super) fn new(
        tools: &Arc<SenderTools>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        event: WebhookEvent,
        body: Bytes,
    ) -> Self {
        Self::with_id(message_id(), tools, webhook, job, event, body)
    }

    /// The last message about a job, once more.
    pub(super) fn again(
        id: String,
        tools: &Arc<SenderTools>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        body: Bytes,
    ) -> Self {
        Self::with_id(id, tools, webhook, job, WebhookEvent::Completed, body)
    }

    /// The message that was written down.
    pub(super) fn of_letter(
        tools: &Arc<SenderTools>,
        webhook: &Arc<Webhook>,
        letter: &OutboxMessage,
    ) -> Self {
        let record = record(
            letter.id.clone(),
            (&letter.account, &letter.job, &letter.model),
            WebhookEvent::Completed,
            webhook,
        );
        let record = DeliveryRecord {
            created_at: letter.created_at,
            earlier_attempts: letter.attempts,
            ..record
        };
        // The store has what is needed to send it once more.
        Self::open(tools, webhook, record, Weak::new(), letter.body.clone())
    }

    fn with_id(
        id: String,
        tools: &Arc<SenderTools>,
        webhook: &Arc<Webhook>,
        job: &Arc<Job>,
        event: WebhookEvent,
        body: Bytes,
    ) -> Self {
        let record = record(
            id,
            (job.account(), job.id(), &job.target().model),
            event,
            webhook,
        );
        Self::open(tools, webhook, record, Arc::downgrade(job), body)
    }

    fn open(
        tools: &Arc<SenderTools>,
        webhook: &Arc<Webhook>,
        record: DeliveryRecord,
        job: Weak<Job>,
        body: Bytes,
    ) -> Self {
        let hurry = Arc::new(Notify::new());
        let (id, job_id, account) = (
            record.id.clone(),
            record.job.clone(),
            record.account.clone(),
        );
        let handle = Handle {
            job,
            webhook: Arc::clone(webhook),
            hurry: Arc::clone(&hurry),
        };
        let record = tools.deliveries.open(record, handle);
        Self {
            tools: Arc::clone(tools),
            webhook: Arc::clone(webhook),
            account,
            job: job_id,
            id,
            body,
            record,
            hurry,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Sends it once, and notes what came of it.
    pub(super) async fn send(&self) -> Verdict {
        let (at, started) = (Timestamp::now(), Instant::now());
        let sent = self
            .tools
            .net
            .post(&self.webhook.url, self.headers(at), self.body.clone())
            .await;
        let result = match &sent {
            Ok(answer) => Ok(answer.status),
            Err(error) => Err(chain(error).to_string()),
        };
        self.tools.deliveries.change(self.record, |record| {
            record.attempted(Attempt {
                at,
                took: started.elapsed(),
                result,
            })
        });
        let verdict = judge(&sent);
        self.tools
            .meter
            .attempted(result_of(&sent), started.elapsed());
        match (&sent, verdict) {
            (_, Verdict::Delivered) => {
                self.change(|record| record.settle(DeliveryState::Delivered, None))
            }
            (Ok(answer), _) => {
                tracing::warn!(job = %self.job, message = self.id, status = answer.status, "webhook not taken")
            }
            (Err(error), _) => {
                tracing::warn!(job = %self.job, message = self.id, error = %chain(error), "webhook not delivered")
            }
        }
        verdict
    }

    /// Notes when it is sent again.
    pub(super) fn again_in(&self, pause: Duration) {
        let at = Timestamp::now().checked_add(pause).ok();
        self.change(|record| {
            record.state = DeliveryState::Retrying;
            record.next_attempt_at = at;
        });
    }

    /// Notes that nothing more is tried.
    pub(super) fn give_up(&self, why: &str) {
        self.change(|record| record.settle(DeliveryState::Failed, Some(why)));
    }

    /// Notes, and tells the operator, that a job's end was never taken.
    pub(super) fn lose(&self, why: &str) {
        self.give_up(why);
        self.tools.meter.given_up.inc();
        tracing::error!(job = %self.job, message = self.id, host = host_of(&self.webhook.url), why, "webhook given up");
    }

    fn change(&self, change: impl FnOnce(&mut DeliveryRecord)) {
        self.tools.deliveries.change(self.record, change);
    }

    fn headers(&self, now: Timestamp) -> HeaderMap {
        let mut headers = self.webhook.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(mut value)) = self
            .tools
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
            .tools
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

fn record(
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
        created_at: Timestamp::now(),
        state: DeliveryState::Sending,
        given_up: None,
        earlier_attempts: 0,
        attempts: Vec::new(),
        next_attempt_at: None,
    }
}

fn result_of(sent: &Result<WebhookResponse, Error>) -> AttemptResult {
    match sent {
        Ok(answer) if answer.is_success() => AttemptResult::Delivered,
        Ok(_) => AttemptResult::NotTaken,
        Err(error) if error.is_refusal() => AttemptResult::NotAllowed,
        Err(_) => AttemptResult::NoAnswer,
    }
}

fn judge(sent: &Result<WebhookResponse, Error>) -> Verdict {
    match sent {
        Ok(answer) if answer.is_success() => Verdict::Delivered,
        Ok(WebhookResponse { status: 410, .. }) => {
            Verdict::Never("the receiver says that it is gone")
        }
        Ok(answer) => Verdict::Later {
            retry_after: answer.retry_after,
        },
        Err(error) if error.is_refusal() => {
            Verdict::Never("the address is not public and not allowed")
        }
        Err(_) => Verdict::Later { retry_after: None },
    }
}
