//! The task that sends the webhooks of one job, in order.
//!
//! Interim messages are sent once. When the job ends, a terminal message overtakes what still
//! waits.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::outbox::OutboxMessage;
use tidegate_core::policy::UpdatePolicy;
use tidegate_net::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::delivery_log::DeliveryLog;
use super::interim_messages::InterimMessages;
use super::message_factory::MessageFactory;
use super::outbox::{CommittedMessage, Outbox};
use super::outgoing_message::{OutgoingMessage, SendVerdict};
use super::retry::deliver_unrecorded;
use super::retry_buffer::RetryBuffer;
use super::{Webhook, WebhookEvent, WebhookSecrets};
use crate::job::Job;
use crate::metrics::JobMetrics;
use crate::run_blocking::run_blocking_if_large;
use crate::snapshot::ReadPosition;

/// How long an interim message may still take after the job has ended, before the terminal message
/// overtakes it.
const OVERTAKE_AFTER: Duration = Duration::from_secs(2);
/// Interim messages queued for a slow receiver; above this they are dropped.
const MAX_QUEUED: usize = 256;

/// What the senders of all jobs share.
#[derive(Clone)]
pub(crate) struct SenderDeps {
    pub(crate) net: Arc<Client>,
    pub(crate) tasks: TaskTracker,
    /// The bearer token sent with every message.
    pub(crate) token: Option<String>,
    /// The secrets that sign every message.
    pub(crate) secrets: WebhookSecrets,
    /// The shortest pause between interim messages; the update policy defines between which.
    pub(crate) throttle: Duration,
    /// How long the terminal message of a job is retried.
    pub(crate) retry_for: Duration,
    pub(crate) retry_buffer: Arc<RetryBuffer>,
    pub(crate) deliveries: Arc<DeliveryLog>,
    pub(crate) metrics: Arc<JobMetrics>,
    /// The outbox; without it messages exist in memory only.
    pub(crate) outbox: Option<Arc<Outbox>>,
    /// Cancelled when the server shuts down: long pauses end.
    pub(crate) closing: CancellationToken,
}

/// Where the messages of a job go.
#[derive(Clone)]
pub(crate) enum InterimTarget {
    /// To the receiver; the terminal message follows them.
    Receiver,
    /// To another process, which sends the terminal message, too.
    Relay(MessageFactory, Arc<dyn InterimMessages>),
}

/// The tracker's handle of a sender task.
pub(crate) struct WebhookSender {
    webhook: Arc<Webhook>,
    sends_terminal: bool,
    outbox: Option<Arc<Outbox>>,
    to_task: mpsc::UnboundedSender<SenderMessage>,
    throttle: Duration,
    last_sent: Option<Instant>,
}

/// A request to the sender task. The body is rendered when the message is sent.
enum SenderMessage {
    Interim(WebhookEvent, ReadPosition),
    /// The job has ended; with its outbox message if the job is recorded.
    Completed(Option<CommittedMessage>),
}

impl WebhookSender {
    pub(crate) fn spawn(
        deps: &Arc<SenderDeps>,
        webhook: Arc<Webhook>,
        job: Arc<Job>,
        target: InterimTarget,
    ) -> Self {
        let (to_task, messages) = mpsc::unbounded_channel();
        let sends_terminal = matches!(target, InterimTarget::Receiver);
        let task = SenderTask {
            deps: Arc::clone(deps),
            webhook: Arc::clone(&webhook),
            job,
            target,
            messages,
        };
        deps.tasks.spawn(task.run());
        Self {
            webhook,
            sends_terminal,
            outbox: deps.outbox.clone(),
            to_task,
            throttle: deps.throttle,
            last_sent: None,
        }
    }

    pub(crate) fn start(&mut self) {
        self.send(
            WebhookEvent::Start,
            ReadPosition {
                outputs: 0,
                logs: 0,
            },
        );
    }

    pub(crate) fn output(&mut self, mark: ReadPosition) {
        self.send(WebhookEvent::Output, mark);
    }

    /// Sends logs. With [`UpdatePolicy::EveryValue`] they are dropped within the throttle interval.
    pub(crate) fn logs(&mut self, mark: ReadPosition) {
        if self.webhook.updates == UpdatePolicy::Newest
            || self
                .last_sent
                .is_none_or(|last| last.elapsed() >= self.throttle)
        {
            self.send(WebhookEvent::Logs, mark);
        }
    }

    pub(crate) fn completed(self, message: Option<OutboxMessage>) {
        if self.sends_terminal && self.webhook.filter.includes(WebhookEvent::Completed) {
            let committed = self.outbox.as_ref().zip(message);
            let committed = committed.map(|(outbox, message)| outbox.committed(message));
            // The task runs until this handle is dropped, so it receives the message.
            self.to_task.send(SenderMessage::Completed(committed)).ok();
        }
    }

    fn send(&mut self, event: WebhookEvent, mark: ReadPosition) {
        if self.webhook.filter.includes(event) {
            self.last_sent = Some(Instant::now());
            self.to_task.send(SenderMessage::Interim(event, mark)).ok();
        }
    }
}

struct SenderTask {
    deps: Arc<SenderDeps>,
    webhook: Arc<Webhook>,
    job: Arc<Job>,
    target: InterimTarget,
    messages: mpsc::UnboundedReceiver<SenderMessage>,
}

impl SenderTask {
    async fn run(mut self) {
        let mut newest = None;
        loop {
            let next = match newest.take() {
                Some(message) => Some(message),
                None => self.messages.recv().await,
            };
            let (event, mark) = match next {
                None => return,
                Some(SenderMessage::Completed(message)) => return self.complete(message).await,
                // The receiver is too slow to follow every value.
                Some(SenderMessage::Interim(..))
                    if self.webhook.updates == UpdatePolicy::EveryValue
                        && self.messages.len() > MAX_QUEUED =>
                {
                    continue;
                }
                Some(SenderMessage::Interim(event, mark)) => (event, mark),
            };
            if self.send_or_overtake(event, mark).await.is_break() {
                return self.overtake().await;
            }
            if self.webhook.updates == UpdatePolicy::Newest && event != WebhookEvent::Start {
                newest = self.newest().await;
            }
        }
    }

    /// The newest message that arrives during the pause after a message. The end is not delayed.
    async fn newest(&mut self) -> Option<SenderMessage> {
        let pause = tokio::time::sleep(self.deps.throttle);
        tokio::pin!(pause);
        let mut newest = None;
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => match message {
                    Some(end @ SenderMessage::Completed(_)) => return Some(end),
                    Some(interim @ SenderMessage::Interim(..)) => newest = Some(interim),
                    // The receiver did not subscribe to the end.
                    None => return newest,
                },
                () = &mut pause => return newest,
            }
        }
    }

    /// Sends an interim message once. Breaks when the job has ended and the message took too long.
    async fn send_or_overtake(
        &mut self,
        event: WebhookEvent,
        mark: ReadPosition,
    ) -> ControlFlow<()> {
        let body = run_blocking_if_large(self.job.weight(), || {
            self.webhook
                .renderer
                .render(&self.job.snapshot_at(mark.outputs, mark.logs))
        });
        if let InterimTarget::Relay(messages, interim) = &self.target {
            let message = messages.message(&self.webhook, &self.job, body);
            return tokio::select! {
                biased;
                is_wanted = interim.put(message) => match is_wanted {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                },
                // The terminal message travels with the end.
                () = self.job.ended() => ControlFlow::Break(()),
            };
        }
        let message = OutgoingMessage::new(&self.deps, &self.webhook, &self.job, event, body);
        let ended = async {
            self.job.ended().await;
            tokio::time::sleep(OVERTAKE_AFTER).await;
        };
        tokio::select! {
            verdict = message.send() => {
                match verdict {
                    SendVerdict::Delivered => message.delivered(),
                    SendVerdict::Later { .. } => message.give_up("only the terminal webhook of a job is retried"),
                    SendVerdict::Never(why) => message.give_up(why),
                }
                ControlFlow::Continue(())
            }
            () = ended => {
                message.give_up("the job ended before the receiver responded");
                // Everything else in the channel is older than the end.
                let subscribed = self.webhook.filter.includes(WebhookEvent::Completed);
                if subscribed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        }
    }

    /// Drops interim messages until the terminal one arrives.
    async fn overtake(mut self) {
        while let Some(message) = self.messages.recv().await {
            if let SenderMessage::Completed(committed) = message {
                return self.complete(committed).await;
            }
        }
    }

    /// Sends the terminal message until it is settled.
    async fn complete(self, committed: Option<CommittedMessage>) {
        let Self {
            deps, webhook, job, ..
        } = self;
        if let Some((outbox, message)) = deps.outbox.as_ref().zip(committed) {
            drop(job);
            return outbox.send_committed(&deps, webhook, message).await;
        }
        job.ended().await;
        let body = run_blocking_if_large(job.weight(), || webhook.renderer.render(&job.snapshot()));
        let message = OutgoingMessage::new(&deps, &webhook, &job, WebhookEvent::Completed, body);
        // The message may wait for a day; it must not keep the job in memory.
        drop(job);
        deliver_unrecorded(&deps, &message).await;
    }
}
