//! Webhooks: HTTP messages to a receiver about the progress of a job.
//!
//! Each job with a webhook has one sender task, so its messages are sent in order and the status
//! never goes backwards. Interim messages are sent once and may be lost; the terminal message is
//! retried until the receiver accepts it or the retry window ends. That of a recorded job is in the
//! outbox, whose schedule is in the store. [`DeliveryLog`] records the results. A process without a
//! store passes interim messages to [`InterimMessages`], and the terminal one on with the end of the job.

mod backoff;
mod delivery_log;
mod in_flight;
mod interim_messages;
mod message_factory;
mod outbox;
mod outbox_poller;
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
pub use interim_messages::InterimMessages;
pub(crate) use message_factory::MessageFactory;
pub(crate) use outbox::Outbox;
pub(crate) use outbox_poller::OutboxPoller;
pub use replay::ReplayError;
pub(crate) use retry_buffer::{RetryBuffer, RetryBufferLimits};
pub(crate) use sender::{InterimTarget, SenderDeps, WebhookSender};
pub use signature::{SecretError, WebhookSecrets};

/// The receiver of a job's webhooks and the contents of the messages.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The URL of the receiver.
    pub url: Url,
    /// The events that are sent.
    pub filter: EventFilter,
    /// Additional headers, such as the trace context of the request that created the job.
    pub headers: HeaderMap,
    /// Which interim messages are sent.
    pub updates: UpdatePolicy,
    /// The origin at which the client reached the server, if messages contain URLs of the server.
    pub origin: Option<String>,
    /// Whether messages contain the URL of the output stream.
    pub streams: bool,
    /// Whether the output stream consists of files.
    pub streams_files: bool,
    /// Renders the job in the client's API.
    pub renderer: WebhookRenderer,
}

/// Renders a job as the body of a webhook, in the format of one API.
#[derive(Clone)]
pub struct WebhookRenderer(Arc<dyn Fn(&Snapshot) -> Bytes + Send + Sync>);

impl WebhookRenderer {
    /// A renderer that calls `render`.
    pub fn new(render: impl Fn(&Snapshot) -> Bytes + Send + Sync + 'static) -> Self {
        Self(Arc::new(render))
    }

    /// The body for the current state of the job.
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
    /// The form that is stored with the job.
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
            stream_url: None,
        }
    }

    /// The webhook of a stored job; `None` if its URL cannot be parsed.
    pub(crate) fn from_spec(
        spec: &WebhookSpec,
        updates: UpdatePolicy,
        renderer: WebhookRenderer,
    ) -> Option<Self> {
        let header = |(name, value): (&String, &String)| {
            Some((
                HeaderName::try_from(name).ok()?,
                HeaderValue::try_from(value).ok()?,
            ))
        };
        let event = |name: &String| {
            WebhookEvent::ALL
                .into_iter()
                .find(|event| event.name() == name)
        };
        Some(Self {
            url: Url::parse(&spec.url).ok()?,
            filter: EventFilter::only(spec.events.iter().filter_map(event)),
            headers: spec.headers.iter().filter_map(header).collect(),
            updates,
            origin: spec.origin.clone(),
            streams: spec.streams,
            streams_files: spec.streams_files,
            renderer,
        })
    }
}

/// A new message id. All attempts to send a message use the same id.
pub(crate) fn message_id() -> String {
    format!("msg_{}", JobId::from_random(random::bits()))
}

/// The kind of a webhook message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebhookEvent {
    /// The model started the job.
    Start,
    /// The model produced an output value.
    Output,
    /// The model wrote logs.
    Logs,
    /// The job ended.
    Completed,
}

impl WebhookEvent {
    /// All events.
    pub const ALL: [Self; 4] = [Self::Start, Self::Output, Self::Logs, Self::Completed];

    /// The name in requests and in stored jobs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Output => "output",
            Self::Logs => "logs",
            Self::Completed => "completed",
        }
    }
}

/// The set of events that a receiver subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFilter(u8);

impl EventFilter {
    /// All events.
    pub const ALL: Self = Self(0b1111);

    /// Only the given events.
    pub fn only(events: impl IntoIterator<Item = WebhookEvent>) -> Self {
        Self(events.into_iter().fold(0, |bits, event| bits | bit(event)))
    }

    /// Whether the set contains `event`.
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
