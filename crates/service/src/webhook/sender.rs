//! The task that sends the messages of one job.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::chain;
use tidegate_core::record::{OutboxMessage, Settlement};
use tidegate_core::store::{SendOutcome, Store};
use tidegate_net::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deliveries::DeliveryLog;
use super::parcel::{Parcel, Verdict};
use super::waiting::{Place, Waiting};
use super::{Secrets, UpdatePolicy, Webhook, WebhookEvent, schedule};
use crate::heavy::heavy;
use crate::job::{Job, Moment};
use crate::meter::JobMetrics;
use crate::random;

/// What is still on its way when a job ends may take this long before the end is told over it.
const OVERTAKE_AFTER: Duration = Duration::from_secs(2);
/// Messages that wait for a slow receiver; above this only the end is still queued.
const MAX_WAITING: usize = 256;
/// The longest pause while the server is on its way out.
const HURRIED: Duration = Duration::from_secs(5);

/// What all senders share.
#[derive(Clone)]
pub(crate) struct SenderTools {
    pub(crate) net: Arc<Client>,
    pub(crate) tasks: TaskTracker,
    /// Sent as a bearer token with every message.
    pub(crate) token: Option<String>,
    /// Sign every message.
    pub(crate) secrets: Secrets,
    /// The shortest pause: between messages about logs, or between all, as the pace says.
    pub(crate) throttle: Duration,
    /// How long the last message of a job is sent again.
    pub(crate) retry_for: Duration,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) deliveries: Arc<DeliveryLog>,
    pub(crate) meter: Arc<JobMetrics>,
    /// Where messages are written down.
    pub(crate) store: Option<Arc<dyn Store>>,
    /// The server is on its way out: no time for long pauses.
    pub(crate) closing: CancellationToken,
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
    At(WebhookEvent, Moment),
    /// The end; with the message that was written down about it, if it was.
    Completed(Option<Box<OutboxMessage>>),
}

impl Sender {
    pub(crate) fn spawn(tools: &Arc<SenderTools>, webhook: Arc<Webhook>, job: Arc<Job>) -> Self {
        let (to_task, messages) = mpsc::unbounded_channel();
        let task = Task {
            tools: Arc::clone(tools),
            webhook: Arc::clone(&webhook),
            job,
            messages,
        };
        tools.tasks.spawn(task.run());
        Self {
            webhook,
            to_task,
            throttle: tools.throttle,
            last: None,
        }
    }

    pub(crate) fn start(&mut self) {
        self.tell(
            WebhookEvent::Start,
            Moment {
                outputs: 0,
                logs: 0,
            },
        );
    }

    pub(crate) fn output(&mut self, moment: Moment) {
        self.tell(WebhookEvent::Output, moment);
    }

    /// Sent unless something was sent a moment ago; what is left out is made up for only at the pace of the
    /// newest.
    pub(crate) fn logs(&mut self, moment: Moment) {
        if self.webhook.pace == UpdatePolicy::Newest
            || self.last.is_none_or(|last| last.elapsed() >= self.throttle)
        {
            self.tell(WebhookEvent::Logs, moment);
        }
    }

    pub(crate) fn completed(self, letter: Option<OutboxMessage>) {
        if self.webhook.filter.wants(WebhookEvent::Completed) {
            // The task lives until this sender is gone.
            self.to_task
                .send(Message::Completed(letter.map(Box::new)))
                .ok();
        }
    }

    fn tell(&mut self, event: WebhookEvent, moment: Moment) {
        if self.webhook.filter.wants(event) {
            self.last = Some(Instant::now());
            self.to_task.send(Message::At(event, moment)).ok();
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
        let mut newest = None;
        loop {
            let next = match newest.take() {
                Some(message) => Some(message),
                None => self.messages.recv().await,
            };
            let (event, moment) = match next {
                None => return,
                Some(Message::Completed(letter)) => return self.complete(letter).await,
                // A receiver this slow has lost count anyway.
                Some(Message::At(..))
                    if self.webhook.pace == UpdatePolicy::EveryValue
                        && self.messages.len() > MAX_WAITING =>
                {
                    continue;
                }
                Some(Message::At(event, moment)) => (event, moment),
            };
            if self.send_or_overtake(event, moment).await.is_break() {
                return self.overtake().await;
            }
            if self.webhook.pace == UpdatePolicy::Newest && event != WebhookEvent::Start {
                newest = self.newest().await;
            }
        }
    }

    /// The newest of what comes during the pause after a message. The end is not kept waiting.
    async fn newest(&mut self) -> Option<Message> {
        let pause = tokio::time::sleep(self.tools.throttle);
        tokio::pin!(pause);
        let mut newest = None;
        loop {
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(end @ Message::Completed(_)) => return Some(end),
                    Some(at @ Message::At(..)) => newest = Some(at),
                    // Nobody wants to hear of the end.
                    None => return newest,
                },
                () = &mut pause => return newest,
            }
        }
    }

    /// Sends a message before the end, once. Breaks when the end has come and waited long enough.
    async fn send_or_overtake(&mut self, event: WebhookEvent, moment: Moment) -> ControlFlow<()> {
        let body = heavy(self.job.weight(), || {
            self.webhook
                .renderer
                .write(&self.job.snapshot_at(moment.outputs, moment.logs))
        });
        let parcel = Parcel::new(&self.tools, &self.webhook, &self.job, event, body);
        let ended = async {
            self.job.ended().await;
            tokio::time::sleep(OVERTAKE_AFTER).await;
        };
        tokio::select! {
            verdict = parcel.send() => {
                match verdict {
                    Verdict::Delivered => {}
                    Verdict::Later { .. } => parcel.give_up("only the last message of a job is sent again"),
                    Verdict::Never(why) => parcel.give_up(why),
                }
                ControlFlow::Continue(())
            }
            () = ended => {
                parcel.give_up("the job ended before the receiver answered");
                // Whatever else waits is older than the end.
                let wants = self.webhook.filter.wants(WebhookEvent::Completed);
                if wants { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        }
    }

    /// Everything before the end is too late.
    async fn overtake(mut self) {
        while let Some(message) = self.messages.recv().await {
            if let Message::Completed(letter) = message {
                return self.complete(letter).await;
            }
        }
    }

    /// Sends the last message until it is taken.
    async fn complete(self, letter: Option<Box<OutboxMessage>>) {
        let Self {
            tools,
            webhook,
            job,
            ..
        } = self;
        if let Some(letter) = letter {
            drop(job);
            return deliver(&tools, webhook, *letter).await;
        }
        job.ended().await;
        let body = heavy(job.weight(), || webhook.renderer.write(&job.snapshot()));
        let parcel = Parcel::new(&tools, &webhook, &job, WebhookEvent::Completed, body);
        // The message may wait for a day; the job need not.
        drop(job);
        deliver_parcel(&tools, &parcel).await;
    }
}

/// Sends a message that was written down until it is taken or given up, and notes which.
pub(crate) async fn deliver(
    tools: &Arc<SenderTools>,
    webhook: Arc<Webhook>,
    letter: OutboxMessage,
) {
    let parcel = Parcel::of_letter(tools, &webhook, &letter);
    let given_up = match until_taken(tools, &parcel, Some(&letter)).await {
        Sent::Taken => None,
        Sent::GivenUp(why) => Some(why.to_owned()),
        // The server goes before the receiver has taken it: the next one tries again.
        Sent::Left => return,
    };
    note(
        tools,
        &letter,
        SendOutcome::Settled(Settlement {
            at: Timestamp::now(),
            given_up,
        }),
    )
    .await;
}

/// Sends a message that is in memory only until it is taken or given up.
pub(super) async fn deliver_parcel(tools: &SenderTools, parcel: &Parcel) {
    until_taken(tools, parcel, None).await;
}

/// Writes down what came of an attempt.
async fn note(tools: &SenderTools, letter: &OutboxMessage, tried: SendOutcome) {
    if let Some(store) = &tools.store
        && let Err(error) = store.record_attempt(&letter.id, tried).await
    {
        tracing::warn!(message = letter.id, error = %chain(&error), "an attempt could not be written down, the webhook may come again");
    }
}

/// What became of a message.
enum Sent {
    Taken,
    GivenUp(&'static str),
    /// The server goes first, and it can be tried again.
    Left,
}

/// Tries until it is taken or given up.
async fn until_taken(tools: &SenderTools, parcel: &Parcel, letter: Option<&OutboxMessage>) -> Sent {
    let deadline = Instant::now() + tools.retry_for;
    let mut place: Option<Place> = None;
    for failed in 1.. {
        let retry_after = match parcel.send().await {
            Verdict::Delivered => return Sent::Taken,
            Verdict::Never(why) => return given_up(parcel, why),
            Verdict::Later { retry_after } => retry_after,
        };
        if letter.is_some() && tools.closing.is_cancelled() {
            return Sent::Left;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return given_up(parcel, "it was not taken within --webhook-retry-for");
        }
        let place = place.get_or_insert_with(|| tools.waiting.enter(parcel.bytes()));
        let pause = schedule::pause(failed, random::fraction(), retry_after).min(left);
        if let (Some(letter), Ok(next)) = (letter, Timestamp::now().checked_add(pause)) {
            note(tools, letter, SendOutcome::Retry(next)).await;
        }
        if rest(tools, parcel, place, pause).await.is_break() {
            return given_up(
                parcel,
                "too many messages wait for receivers that do not take them",
            );
        }
    }
    Sent::Taken
}

fn given_up(parcel: &Parcel, why: &'static str) -> Sent {
    parcel.lose(why);
    Sent::GivenUp(why)
}

/// Waits for the next attempt; breaks when there is no room to wait.
async fn rest(
    tools: &SenderTools,
    parcel: &Parcel,
    place: &Place,
    pause: Duration,
) -> ControlFlow<()> {
    let was_closing = tools.closing.is_cancelled();
    let pause = if was_closing {
        pause.min(HURRIED)
    } else {
        pause
    };
    parcel.again_in(pause);
    tokio::select! {
        () = tokio::time::sleep(pause) => ControlFlow::Continue(()),
        () = parcel.hurry.notified() => ControlFlow::Continue(()),
        // One more try before the server is gone.
        () = tools.closing.cancelled(), if !was_closing => ControlFlow::Continue(()),
        () = place.sent_away() => ControlFlow::Break(()),
    }
}
