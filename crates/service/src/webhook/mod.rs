//! Telling somebody's server how a job goes.
//!
//! Each job with a webhook has one sender task, so its messages leave in order and never tell a lower
//! state after a higher one. Messages before the end are sent once and may be lost; the last one is
//! sent until somebody takes it or the time for it is over. [`DeliveryLog`] remembers what became of them.

mod backoff;
mod delivery_log;
mod outgoing_message;
mod replay;
mod retry;
mod retry_buffer;
mod sender;
mod signature;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::JobId;
use tidegate_core::policy::UpdatePolicy;
use tidegate_core::record::WebhookSpec;
use tidegate_net::Url;
use tidegate_net::header::{HeaderMap, HeaderName, HeaderValue};

use crate::{Snapshot, random};

pub use delivery_log::{Attempt, DeliveryLog, DeliveryRecord, DeliveryState};
pub use replay::ReplayError;
pub(crate) use retry::deliver;
pub(crate) use retry_buffer::{RetryBuffer, RetryBufferLimits};
pub(crate) use sender::{SenderDeps, WebhookSender};
pub use signature::{SecretError, WebhookSecrets};

/// Where and how to tell.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The receiver.
    pub url: Url,
    /// What it wants to hear.
    pub filter: EventFilter,
    /// Sent along; the trace of the request that made the job, for instance.
    pub headers: HeaderMap,
    /// How often it is told.
    pub updates: UpdatePolicy,
    /// The address by which the caller reached us, if messages speak of it.
    pub origin: Option<String>,
    /// Whether messages say where the output can be read as it comes.
    pub streams: bool,
    /// Whether what can be read there are files.
    pub streams_files: bool,
    /// How the dialect of the caller writes a job.
    pub renderer: WebhookRenderer,
}

/// How a dialect writes a job for the receiver of a webhook.
#[derive(Clone)]
pub struct WebhookRenderer(Arc<dyn Fn(&Snapshot) -> Bytes + Send + Sync>);

impl WebhookRenderer {
    /// Written like this.
    pub fn new(write: impl Fn(&Snapshot) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// The job in these words.
    pub fn render(&self, job: &Snapshot) -> Bytes {
        (self.0)(job)
    }
}

impl fmt::Debug for WebhookRenderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookRenderer")
    }
}

impl Webhook {
    /// As it is written down.
    pub(crate) fn to_spec(&self) -> WebhookSpec {
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = self
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
        let events = WebhookEvent::ALL
            .iter()
            .filter(|event| self.filter.includes(**event))
            .map(|event| event.name().to_owned());
        WebhookSpec {
            url: self.url.to_string(),
            events: events.collect(),
            headers: headers.collect(),
            origin: self.origin.clone(),
            streams: self.streams,
            streams_files: self.streams_files,
        }
    }

    /// As it was written down; `None` when that cannot be read.
    pub(crate) fn from_spec(
        hook: &WebhookSpec,
        updates: UpdatePolicy,
        renderer: WebhookRenderer,
    ) -> Option<Self> {
        let header = |(name, value): (&String, &String)| {
            Some((
                HeaderName::try_from(name).ok()?,
                HeaderValue::try_from(value).ok()?,
            ))
        };
        let named = |name: &String| {
            WebhookEvent::ALL
                .into_iter()
                .find(|event| event.name() == name)
        };
        Some(Self {
            url: Url::parse(&hook.url).ok()?,
            filter: EventFilter::only(hook.events.iter().filter_map(named)),
            headers: hook.headers.iter().filter_map(header).collect(),
            updates,
            origin: hook.origin.clone(),
            streams: hook.streams,
            streams_files: hook.streams_files,
            renderer,
        })
    }
}

/// A new id for a message: the same over all attempts.
pub(crate) fn message_id() -> String {
    format!("msg_{}", JobId::from_random(random::bits()))
}

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebhookEvent {
    /// The model began.
    Start,
    /// The model gave a value.
    Output,
    /// The model printed something.
    Logs,
    /// The job is over.
    Completed,
}

impl WebhookEvent {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Start, Self::Output, Self::Logs, Self::Completed];

    /// Its name in requests and in what is written down.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Output => "output",
            Self::Logs => "logs",
            Self::Completed => "completed",
        }
    }
}

/// Which kinds of message a receiver wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFilter(u8);

impl EventFilter {
    /// Everything.
    pub const ALL: Self = Self(0b1111);

    /// Only these.
    pub fn only(events: impl IntoIterator<Item = WebhookEvent>) -> Self {
        Self(events.into_iter().fold(0, |bits, event| bits | bit(event)))
    }

    /// Whether this kind is wanted.
    pub fn includes(self, event: WebhookEvent) -> bool {
        self.0 & bit(event) != 0
    }
}

fn bit(event: WebhookEvent) -> u8 {
    match event {
        WebhookEvent::Start => 1,
        WebhookEvent::Output => 2,
        WebhookEvent::Logs => 4,
        WebhookEvent::Completed => 8,
    }
}
