//! Channels of Redis that this process listens on, over one connection. When it is lost, a new one
//! subscribes to the same channels: messages in between are lost.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::url::Connector;

/// The pause after the connection was lost.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// A change of the channels.
enum Change {
    Subscribe(String),
    Unsubscribe(String),
}

/// A message of a channel.
pub(super) struct ChannelMessage {
    pub(super) channel: String,
    pub(super) payload: String,
}

/// Listens on channels until it is dropped.
pub(super) struct Subscriptions {
    changes: mpsc::UnboundedSender<Change>,
    /// Stopped when it is dropped.
    _tasks: JoinSet<()>,
}

impl Subscriptions {
    /// Connects in the background.
    pub(super) fn open(connector: Connector) -> (Self, mpsc::UnboundedReceiver<ChannelMessage>) {
        let (changes, received) = mpsc::unbounded_channel();
        let (sender, messages) = mpsc::unbounded_channel();
        let listener = Listener {
            connector,
            channels: HashSet::new(),
            changes: received,
            messages: sender,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.run());
        let subscriptions = Self {
            changes,
            _tasks: tasks,
        };
        (subscriptions, messages)
    }

    pub(super) fn subscribe(&self, channel: String) {
        self.changes.send(Change::Subscribe(channel)).ok();
    }

    pub(super) fn unsubscribe(&self, channel: String) {
        self.changes.send(Change::Unsubscribe(channel)).ok();
    }
}

struct Listener {
    connector: Connector,
    channels: HashSet<String>,
    changes: mpsc::UnboundedReceiver<Change>,
    messages: mpsc::UnboundedSender<ChannelMessage>,
}

impl Listener {
    async fn run(mut self) {
        loop {
            match self.connect().await {
                Ok((sink, stream)) => {
                    if self.listen(sink, stream).await.is_none() {
                        return;
                    }
                    tracing::warn!("lost the connection for live events, reconnecting");
                }
                Err(error) => tracing::debug!(%error, "failed to connect for live events"),
            }
            tokio::select! {
                () = tokio::time::sleep(RECONNECT_AFTER) => {}
                () = self.messages.closed() => return,
            }
        }
    }

    async fn connect(&mut self) -> RedisResult<(PubSubSink, PubSubStream)> {
        let pubsub = match &mut self.connector {
            Connector::Server(client) => client.get_async_pubsub().await?,
            Connector::Sentinel(sentinel) => {
                let client = sentinel.async_get_client().await?;
                client.get_async_pubsub().await?
            }
        };
        let (mut sink, stream) = pubsub.split();
        for channel in &self.channels {
            sink.subscribe(channel).await?;
        }
        Ok((sink, stream))
    }

    /// Passes messages on until the connection is lost; `None` when no receiver is left.
    async fn listen(&mut self, mut sink: PubSubSink, mut stream: PubSubStream) -> Option<()> {
        loop {
            tokio::select! {
                change = self.changes.recv() => {
                    let changed = match change? {
                        Change::Subscribe(channel) if self.channels.insert(channel.clone()) => {
                            sink.subscribe(channel).await
                        }
                        Change::Unsubscribe(channel) if self.channels.remove(&channel) => {
                            sink.unsubscribe(channel).await
                        }
                        Change::Subscribe(_) | Change::Unsubscribe(_) => Ok(()),
                    };
                    if changed.is_err() {
                        return Some(());
                    }
                }
                message = stream.next() => {
                    let Some(message) = message else {
                        return Some(());
                    };
                    let channel = message.get_channel_name().to_owned();
                    if let Ok(payload) = message.get_payload::<String>() {
                        self.messages.send(ChannelMessage { channel, payload }).ok()?;
                    }
                }
            }
        }
    }
}
