//! Counts requests by model, and sends inference events to a Unix socket.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::counters::Counter;
use tidegate_router::FleetRegistry;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::event::InferenceEvent;
use super::model_metrics::RoutedModelMetrics;

/// The events that wait while the socket is not read. Later ones are dropped.
const MAX_PENDING: usize = 4096;
/// The pause before the socket is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

/// The counters of all models, and the way of the events.
pub(crate) struct GatewayTelemetry {
    registry: Arc<FleetRegistry>,
    models: ArcSwap<HashMap<String, Arc<RoutedModelMetrics>>>,
    events: mpsc::Sender<InferenceEvent>,
    /// Events that were dropped because the socket was not read.
    pub(crate) dropped_events: Counter,
    /// Requests that another site did not serve, by site.
    forward_failures: Mutex<BTreeMap<String, u64>>,
    /// Events that were written.
    pub(crate) sent_events: Counter,
}

impl GatewayTelemetry {
    /// The telemetry, and the events that [`GatewayTelemetry::run`] sends.
    pub(super) fn new(registry: Arc<FleetRegistry>) -> (Self, mpsc::Receiver<InferenceEvent>) {
        let (events, receiver) = mpsc::channel(MAX_PENDING);
        let telemetry = Self {
            registry,
            models: ArcSwap::default(),
            events,
            dropped_events: Counter::default(),
            forward_failures: Mutex::default(),
            sent_events: Counter::default(),
        };
        (telemetry, receiver)
    }

    /// The site of this router.
    pub(super) fn site(&self) -> String {
        self.registry.table().fleet().site.clone()
    }

    /// The counters of a model of the fleet.
    pub(super) fn model(&self, name: &str) -> Arc<RoutedModelMetrics> {
        if let Some(metrics) = self.models.load().get(name) {
            return Arc::clone(metrics);
        }
        let new = Arc::new(RoutedModelMetrics::default());
        self.models.rcu(|models| {
            let mut models = HashMap::clone(models);
            models
                .entry(name.to_owned())
                .or_insert_with(|| Arc::clone(&new));
            models
        });
        self.models.load().get(name).cloned().unwrap_or(new)
    }

    /// The counters of all models that were asked for.
    pub(crate) fn models(&self) -> Arc<HashMap<String, Arc<RoutedModelMetrics>>> {
        self.models.load_full()
    }

    /// Counts a request that another site did not serve.
    pub(super) fn count_forward_failure(&self, site: &str) {
        let mut failures = lock(&self.forward_failures);
        *failures.entry(site.to_owned()).or_default() += 1;
    }

    /// The requests that other sites did not serve.
    pub(crate) fn forward_failures(&self) -> BTreeMap<String, u64> {
        lock(&self.forward_failures).clone()
    }

    /// Whether events have a receiver.
    pub(super) fn has_event_sink(&self) -> bool {
        self.socket().is_some()
    }

    /// Sends an event, or drops it if too many wait.
    pub(super) fn send(&self, event: InferenceEvent) {
        if self.events.try_send(event).is_err() {
            self.dropped_events.inc();
        }
    }

    fn socket(&self) -> Option<PathBuf> {
        self.registry.table().fleet().events_socket.clone()
    }

    /// Writes events to the socket of the configuration until `stop` is cancelled, and then those that
    /// wait.
    pub(super) async fn run(
        &self,
        mut events: mpsc::Receiver<InferenceEvent>,
        stop: CancellationToken,
    ) {
        let mut connection = None;
        while let Some(event) = next_event(&mut events, &stop).await {
            let Ok(mut line) = serde_json::to_vec(&event) else {
                continue;
            };
            line.push(b'\n');
            while let Err(error) = self.write(&mut connection, &line).await {
                connection = None;
                tracing::debug!(%error, "failed to send an inference event");
                if stop.is_cancelled() || self.socket().is_none() {
                    self.dropped_events.inc();
                    break;
                }
                stop.run_until_cancelled(tokio::time::sleep(RECONNECT))
                    .await;
            }
        }
    }

    async fn write(
        &self,
        connection: &mut Option<EventConnection>,
        line: &[u8],
    ) -> std::io::Result<()> {
        let Some(path) = self.socket() else {
            return Err(std::io::ErrorKind::NotConnected.into());
        };
        if connection.as_ref().is_none_or(|open| open.path != path) {
            *connection = Some(EventConnection::open(path).await?);
        }
        if let Some(open) = connection {
            open.write(line).await?;
            self.sent_events.inc();
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next event; after `stop` only those that wait already.
async fn next_event(
    events: &mut mpsc::Receiver<InferenceEvent>,
    stop: &CancellationToken,
) -> Option<InferenceEvent> {
    match stop.run_until_cancelled(events.recv()).await {
        Some(event) => event,
        None => events.try_recv().ok(),
    }
}

/// An open socket of a log forwarder.
struct EventConnection {
    path: PathBuf,
    socket: EventSocket,
}

enum EventSocket {
    Stream(UnixStream),
    Datagram(UnixDatagram),
}

impl EventConnection {
    /// Connects to a socket for streams, or for datagrams if it is one.
    async fn open(path: PathBuf) -> std::io::Result<Self> {
        let socket = match UnixStream::connect(&path).await {
            Ok(stream) => EventSocket::Stream(stream),
            Err(error) => {
                let datagram = UnixDatagram::unbound()?;
                datagram.connect(&path).map_err(|_| error)?;
                EventSocket::Datagram(datagram)
            }
        };
        Ok(Self { path, socket })
    }

    async fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        match &mut self.socket {
            EventSocket::Stream(stream) => stream.write_all(line).await,
            EventSocket::Datagram(socket) => socket.send(line).await.map(drop),
        }
    }
}
