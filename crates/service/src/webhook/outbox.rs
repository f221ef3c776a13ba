//! The outbox of this server: makes the attempts to send the terminal messages of recorded jobs.
//!
//! The store has the messages with their schedule; memory has only those that are being sent. The
//! message of a job that just ended is claimed by the commit of its end and sent directly.
//! `outbox_poller.rs` takes all others from the store: retries, messages of previous processes, and
//! those for which there was no room in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::clock;
use tidegate_core::leases::JobRef;
use tidegate_core::outbox::{MessageClaim, MessageLimits, OutboxMessage, SendOutcome, Settlement};
use tidegate_core::policy::UpdatePolicy;
use tidegate_core::store::{Store, StoreError};
use tidegate_core::{JobId, chain, planted};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::in_flight::{InFlight, InFlightMessage};
use super::outgoing_message::{OutgoingMessage, SendVerdict};
use super::sender::SenderDeps;
use super::{MessageFactory, Webhook, WebhookRenderer, backoff};
use crate::random;

/// How much may be sent at the same time.
const IN_FLIGHT: MessageLimits = MessageLimits {
    messages: 2048,
    bytes: 256 * 1024 * 1024,
};
/// A claim lasts as long as this many attempts: one, and the time to record its result.
const CLAIM_ATTEMPTS: u32 = 2;
/// The pause after the store rejected the result of an attempt.
const RECORD_PAUSE: Duration = Duration::from_secs(1);
/// The messages that wait for a retry are counted again after this many times the duration of a count.
const COUNT_SHARE: u32 = 20;
/// They are counted again after this time at the latest.
const MAX_COUNT_AGE: Duration = Duration::from_secs(60);
/// Why a message is given up at the end of its window.
const WINDOW_ENDED: &str = "not delivered within --webhook-retry-for";

/// The outbox, shared by all models of a server.
pub(crate) struct Outbox {
    pub(super) store: Arc<dyn Store>,
    /// Claims messages for this process.
    pub(super) claim: MessageClaim,
    retry_for: Duration,
    pub(super) in_flight: Arc<InFlight>,
    /// When the poller asks the store next.
    next_poll: Mutex<Instant>,
    /// Notified when `next_poll` is earlier than before.
    poll_moved: Notify,
    /// By model, for the metrics of a model's messages.
    senders: Mutex<HashMap<String, Weak<SenderDeps>>>,
    /// Messages that wait for a retry, by model, when they were last counted.
    retrying: Mutex<BTreeMap<String, usize>>,
    /// When they may be counted again. Locked during a count.
    next_count: tokio::sync::Mutex<Instant>,
    /// Cancelled when the poller takes no more messages.
    pub(super) stopped: CancellationToken,
}

/// The terminal message of a job that just ended. The store has it, claimed by this process.
pub(crate) enum CommittedMessage {
    /// It is sent from memory.
    InMemory(Box<InFlightMessage>),
    /// There was no room for it in memory: the poller reads it when there is.
    InStore {
        /// The id of the message.
        id: String,
    },
}

impl Outbox {
    /// `attempt_timeout` is the longest time of one attempt, `retry_for` the retry window of new
    /// messages.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        attempt_timeout: Duration,
        retry_for: Duration,
    ) -> Self {
        let lasts = attempt_timeout * CLAIM_ATTEMPTS;
        planted!(EndlessClaim, let lasts = Duration::from_secs(24 * 60 * 60));
        Self {
            store,
            claim: MessageClaim {
                holder: JobId::from_random(random::bits()).to_string(),
                lasts,
            },
            retry_for,
            in_flight: Arc::new(InFlight::new(IN_FLIGHT)),
            next_poll: Mutex::new(Instant::now()),
            poll_moved: Notify::new(),
            senders: Mutex::default(),
            retrying: Mutex::default(),
            next_count: tokio::sync::Mutex::new(Instant::now()),
            stopped: CancellationToken::new(),
        }
    }

    /// How long taking messages may last, so that an attempt ends before the claim does.
    pub(super) fn longest_take(&self) -> Duration {
        self.claim.lasts - self.claim.lasts / CLAIM_ATTEMPTS
    }

    /// Counts the attempts of this model's messages in its metrics.
    pub(crate) fn add_model(&self, model: &str, senders: &Arc<SenderDeps>) {
        let mut known = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, senders| senders.strong_count() > 0);
        known.insert(model.to_owned(), Arc::downgrade(senders));
    }

    /// The senders of a model, if it is served.
    pub(super) fn senders_of(&self, model: &str) -> Option<Arc<SenderDeps>> {
        let known = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model)?.upgrade()
    }

    /// Creates the terminal messages of jobs. This process claims them: they follow the interim
    /// messages, which only this process knows.
    pub(crate) fn messages(&self) -> MessageFactory {
        MessageFactory {
            retry_for: self.retry_for,
            claim: Some(self.claim.clone()),
        }
    }

    /// Completes the message of a job that another process has rendered, and claims it.
    pub(crate) fn complete(&self, message: &mut OutboxMessage, job: &JobRef) {
        message.account.clone_from(&job.account);
        message.job.clone_from(&job.id);
        message.attempts = 0;
        message.created_at = clock::now();
        message.retry_until = message.created_at.checked_add(self.retry_for).ok();
        message.claim = Some(self.claim.clone());
    }

    /// Makes the poller look for new messages at once.
    pub(crate) fn poll_soon(&self) {
        self.poll_within(Duration::ZERO);
    }

    /// Keeps a message in memory that was just committed, if there is room.
    pub(crate) fn committed(&self, message: OutboxMessage) -> CommittedMessage {
        match self.in_flight.try_enter(message) {
            Ok(message) => CommittedMessage::InMemory(Box::new(message)),
            Err(id) => CommittedMessage::InStore { id },
        }
    }

    /// Makes the first attempt, now or when there is room.
    pub(crate) async fn send_committed(
        &self,
        senders: &Arc<SenderDeps>,
        webhook: Arc<Webhook>,
        message: CommittedMessage,
    ) {
        match message {
            CommittedMessage::InMemory(message) => self.attempt(senders, webhook, *message).await,
            CommittedMessage::InStore { id } => self.release(&id).await,
        }
    }

    /// Like [`Self::send_committed`], in a new task.
    pub(crate) fn spawn_committed(
        self: &Arc<Self>,
        senders: &Arc<SenderDeps>,
        message: OutboxMessage,
    ) {
        match self.committed(message) {
            CommittedMessage::InMemory(message) => {
                self.spawn_attempt(Arc::clone(senders), *message)
            }
            CommittedMessage::InStore { id } => {
                let outbox = Arc::clone(self);
                senders
                    .tasks
                    .spawn(async move { outbox.release(&id).await });
            }
        }
    }

    /// Makes one attempt to send a message without a sender task.
    pub(super) fn spawn_attempt(
        self: &Arc<Self>,
        senders: Arc<SenderDeps>,
        message: InFlightMessage,
    ) {
        // Its body is rendered already, and no interim messages precede it.
        let webhook = Webhook::from_spec(
            &message.message.hook,
            UpdatePolicy::Newest,
            WebhookRenderer::new(|_| Bytes::new()),
        );
        let outbox = Arc::clone(self);
        senders.tasks.clone().spawn(async move {
            match webhook {
                Some(webhook) => outbox.attempt(&senders, Arc::new(webhook), message).await,
                None => outbox.give_up(&senders, message).await,
            }
        });
    }

    /// Leaves a message that this process claimed to the poller.
    async fn release(&self, id: &str) {
        if let Err(error) = self.store.release_message(id, &self.claim.holder).await {
            tracing::warn!(message = id, error = %chain(&error), "failed to release webhook, it is sent when its claim ends");
        }
        self.poll_within(Duration::ZERO);
    }

    /// Makes one attempt and records the result. The log shows the result once it is recorded.
    pub(super) async fn attempt(
        &self,
        senders: &Arc<SenderDeps>,
        webhook: Arc<Webhook>,
        message: InFlightMessage,
    ) {
        let (stored, _entry) = message.into_parts();
        let (id, attempts) = (stored.id.clone(), stored.attempts);
        let retry_until = self.retry_until(&stored);
        let message = OutgoingMessage::from_outbox(senders, &webhook, stored);
        planted!(sometimes LostWebhook if attempts == 0, return self.record(senders, &id, settled(None)).await);
        let why = match message.send().await {
            SendVerdict::Delivered => {
                self.record(senders, &id, settled(None)).await;
                return message.delivered();
            }
            SendVerdict::Later { retry_after } => {
                let remaining = until(retry_until);
                if !remaining.is_zero() {
                    let pause = backoff::pause(attempts + 1, random::fraction(), retry_after);
                    let pause = pause.min(remaining);
                    self.record(senders, &id, SendOutcome::Retry(pause)).await;
                    message.set_next_attempt(pause);
                    return self.poll_within(pause);
                }
                WINDOW_ENDED
            }
            SendVerdict::Never(why) => why,
        };
        self.record(senders, &id, settled(Some(why))).await;
        message.fail(why);
    }

    /// The end of the retry window. An older version did not store it.
    fn retry_until(&self, message: &OutboxMessage) -> Timestamp {
        let window_from = |start: Timestamp| start.checked_add(self.retry_for);
        message
            .retry_until
            .or_else(|| window_from(message.created_at).ok())
            .unwrap_or(Timestamp::MAX)
    }

    /// Gives up on a message that has no receiver.
    async fn give_up(&self, senders: &SenderDeps, message: InFlightMessage) {
        let (stored, _entry) = message.into_parts();
        let why = "the URL of the webhook cannot be parsed";
        senders.metrics.given_up.inc();
        tracing::error!(message = stored.id, why, "gave up on webhook");
        self.record(senders, &stored.id, settled(Some(why))).await;
    }

    /// Records the result of an attempt. A message whose result is lost is sent again, so this
    /// continues until the store has it or the server shuts down.
    async fn record(&self, senders: &SenderDeps, id: &str, outcome: SendOutcome) {
        let holder = &self.claim.holder;
        while let Err(error) = self.store.record_attempt(id, holder, outcome.clone()).await {
            tracing::warn!(message = id, error = %chain(&error), "failed to record webhook attempt, the webhook may be sent again");
            let is_temporary = matches!(error, StoreError::Full(_) | StoreError::Unavailable(_));
            if !is_temporary || senders.closing.is_cancelled() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(RECORD_PAUSE) => {}
                () = senders.closing.cancelled() => {}
            }
        }
    }

    /// Makes the poller ask the store after this time at the latest.
    pub(super) fn poll_within(&self, pause: Duration) {
        let at = Instant::now() + pause;
        let mut next_poll = self.lock_next_poll();
        if at < *next_poll {
            *next_poll = at;
            self.poll_moved.notify_one();
        }
    }

    /// Makes the poller ask the store after this time, unless something earlier is known later.
    pub(super) fn postpone_poll(&self, pause: Duration) {
        *self.lock_next_poll() = Instant::now() + pause;
    }

    /// Returns when the poller should ask the store.
    pub(super) async fn poll_due(&self) {
        loop {
            let at = *self.lock_next_poll();
            tokio::select! {
                () = tokio::time::sleep_until(at) => return,
                () = self.poll_moved.notified() => {}
            }
        }
    }

    fn lock_next_poll(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.next_poll
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The retry window of messages that are sent again.
    pub(super) fn window(&self) -> Duration {
        self.retry_for
    }

    /// Counts the messages that wait for a retry, unless they were just counted: a count looks at all of
    /// them, so counts take a twentieth of the time at most.
    pub(crate) async fn count_retries(&self) {
        let mut next_count = self.next_count.lock().await;
        if Instant::now() < *next_count {
            return;
        }
        let began = Instant::now();
        match self.store.outbox_counts().await {
            Ok(counts) => {
                let mut retrying = self.retrying.lock().unwrap_or_else(PoisonError::into_inner);
                *retrying = counts.retrying;
                let pause = (began.elapsed() * COUNT_SHARE).min(MAX_COUNT_AGE);
                *next_count = Instant::now() + pause;
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to count webhooks that wait for a retry");
            }
        }
    }

    /// The messages of a model that waited for a retry when they were last counted.
    pub(crate) fn retrying(&self, model: &str) -> usize {
        let retrying = self.retrying.lock().unwrap_or_else(PoisonError::into_inner);
        retrying.get(model).copied().unwrap_or_default()
    }

    /// Takes no more messages. Attempts in progress continue.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }
}

fn settled(given_up: Option<&str>) -> SendOutcome {
    SendOutcome::Settled(Settlement {
        at: clock::now(),
        given_up: given_up.map(str::to_owned),
    })
}

/// The time until `at`; zero when it has passed.
fn until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(clock::now())).unwrap_or_default()
}
