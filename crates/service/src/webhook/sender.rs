//! The task that sends the messages of one job.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_net::Client;
use tidegate_net::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::{Webhook, WebhookEvent};
use crate::job::{Job, Moment};

/// Attempts after the first for the last message of a job.
const RETRIES: u32 = 12;
/// What is still on its way when a job ends may take this long before the end is told over it.
const OVERTAKE_AFTER: Duration = Duration::from_secs(2);
/// Messages that wait for a slow receiver; above this only the end is still queued.
const MAX_WAITING: usize = 256;

/// What all senders share.
pub(crate) struct SenderTools {
    pub(crate) net: Arc<Client>,
    pub(crate) tasks: TaskTracker,
    /// Sent as a bearer token with every message.
    pub(crate) token: Option<String>,
    /// Log messages come at most this often.
    pub(crate) throttle: Duration,
}

/// The tracker's end of a sender task.
pub(crate) struct Sender {
    webhook: Arc<Webhook>,
    to_task: mpsc::UnboundedSender<Message>,
    throttle: Duration,
    last: Option<Instant>,
}

/// A message to be written when its turn comes.
enum Message {
    At(Moment),
    Completed,
}

impl Sender {
    pub(crate) fn spawn(tools: &Arc<SenderTools>, webhook: Webhook, job: Arc<Job>) -> Self {
        let (to_task, messages) = mpsc::unbounded_channel();
        let webhook = Arc::new(webhook);
        let task = Task { tools: Arc::clone(tools), webhook: Arc::clone(&webhook), job, messages };
        tools.tasks.spawn(task.run());
        Self { webhook, to_task, throttle: tools.throttle, last: None }
    }

    pub(crate) fn start(&mut self) {
        self.tell(WebhookEvent::Start, Moment { outputs: 0, logs: 0 });
    }

    pub(crate) fn output(&mut self, moment: Moment) {
        self.tell(WebhookEvent::Output, moment);
    }

    /// Sent unless something was sent a moment ago; what is left out is not made up for.
    pub(crate) fn logs(&mut self, moment: Moment) {
        if self.last.is_none_or(|last| last.elapsed() >= self.throttle) {
            self.tell(WebhookEvent::Logs, moment);
        }
    }

    pub(crate) fn completed(self) {
        if self.webhook.filter.wants(WebhookEvent::Completed) {
            // The task lives until this sender is gone.
            self.to_task.send(Message::Completed).ok();
        }
    }

    fn tell(&mut self, event: WebhookEvent, moment: Moment) {
        if self.webhook.filter.wants(event) {
            self.last = Some(Instant::now());
            self.to_task.send(Message::At(moment)).ok();
        }
    }
}

struct Task {
    tools: Arc<SenderTools>,
    webhook: Arc<Webhook>,
    job: Arc<Job>,
    messages: mpsc::UnboundedReceiver<Message>,
}

impl Task {
    async fn run(mut self) {
        while let Some(message) = self.messages.recv().await {
            match message {
                Message::Completed => return self.complete().await,
                // A receiver this slow has lost count anyway.
                Message::At(_) if self.messages.len() > MAX_WAITING => {}
                Message::At(moment) => {
                    if self.send_or_overtake(moment).await.is_break() {
                        return self.complete().await;
                    }
                }
            }
        }
    }

    /// Sends a message before the end. Breaks when the end has come and waited long enough.
    async fn send_or_overtake(&mut self, moment: Moment) -> std::ops::ControlFlow<()> {
        let (tools, webhook) = (Arc::clone(&self.tools), Arc::clone(&self.webhook));
        let body = (webhook.body)(&self.job.snapshot_at(moment.outputs, moment.logs));
        let headers = self.headers();
        let sending = tools.net.post(&webhook.url, headers, body);
        tokio::pin!(sending);
        let ended = async {
            self.job.ended().await;
            tokio::time::sleep(OVERTAKE_AFTER).await;
        };
        let sent = tokio::select! {
            sent = &mut sending => sent,
            () = ended => {
                // Whatever else waits is older than the end.
                let wants = self.webhook.filter.wants(WebhookEvent::Completed);
                return if wants { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) };
            }
        };
        if let Err(error) = sent {
            tracing::warn!(job = %self.job.id(), error = %chain(&error), "webhook not delivered");
        }
        std::ops::ControlFlow::Continue(())
    }

    /// Sends the last message until it is taken.
    async fn complete(&self) {
        self.job.ended().await;
        let body = (self.webhook.body)(&self.job.snapshot());
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(100 << attempt.min(10))).await;
            }
            match self.tools.net.post(&self.webhook.url, self.headers(), body.clone()).await {
                Ok(status) if status.is_success() => return,
                Ok(status) if !worth_retrying(status.as_u16()) => {
                    tracing::warn!(job = %self.job.id(), %status, "webhook refused");
                    return;
                }
                Ok(status) => tracing::warn!(job = %self.job.id(), %status, attempt, "webhook not taken"),
                Err(error) => tracing::warn!(job = %self.job.id(), error = %chain(&error), attempt, "webhook not delivered"),
            }
        }
        tracing::error!(job = %self.job.id(), attempts = RETRIES + 1, "webhook given up");
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = self.webhook.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Ok(mut value)) = self.tools.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}"))) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }
}

/// Answers after which the same message may still be taken later.
fn worth_retrying(status: u16) -> bool {
    matches!(status, 429 | 500 | 502 | 503 | 504)
}
