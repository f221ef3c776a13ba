//! The control plane: owns the configuration in force and the endpoints that were found, and applies both
//! to the registry when either changes.
//!
//! A new configuration is validated before anything of it is used; a mistake keeps the old one. Nothing
//! here is in the path of a request.

mod file;
mod input;
mod resolve;
mod state;
mod status;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_net::upstream::UpstreamPool;
use tokio::sync::{Notify, watch as watch_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use file::SystemSecrets;
pub use input::FleetInput;
pub use status::{ControlStatus, SourceCondition, SourceStatus};

use crate::discovery::{DiscoverySource, FoundEndpoint};
use crate::endpoint::EndpointKey;
use crate::fleet::{BackendUrl, Discovery, Fleet, FleetDiff, FleetError};
use crate::join;
use crate::learn::{self, LearnSignals, LearnedBackends};
use crate::model_schemas::ModelSchemas;
use crate::outbound::OutboundClient;
use crate::probe::{self, ProbeTargets};
use crate::table::FleetRegistry;
use file::FileSet;
use input::LoadedFleet;
use state::ControlState;

/// How the control plane works; the defaults are right outside of tests.
#[derive(Debug, Clone)]
pub struct ControlOptions {
    /// The time between two looks at the file and the secret files that it names. A change is used when
    /// two looks find the same, so that a file that is being written is not read.
    pub watch_interval: Duration,
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self {
            watch_interval: Duration::from_millis(500),
        }
    }
}

/// A handle of the control plane.
#[derive(Clone)]
pub struct FleetControl {
    shared: Arc<ControlShared>,
}

/// What the tasks of the control plane share.
pub(crate) struct ControlShared {
    pub(crate) registry: Arc<FleetRegistry>,
    pub(crate) client: OutboundClient,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    input: FleetInput,
    state: Mutex<ControlState>,
    /// Held while a file is read and applied, so that an older content never replaces a newer one.
    reloading: tokio::sync::Mutex<()>,
    /// Whether every source has answered or failed once.
    settled: watch_channel::Sender<bool>,
    /// The endpoints to check.
    targets: watch_channel::Sender<Arc<ProbeTargets>>,
    /// Notified when a registration is new or renewed.
    pub(crate) registrations_changed: Notify,
    pub(crate) learn_signals: LearnSignals,
    pub(crate) schemas: ModelSchemas,
}

impl FleetControl {
    /// Reads the configuration, applies it to the registry, and starts the tasks that keep it current
    /// until `stop`. Must be called within a runtime.
    pub fn start(
        registry: Arc<FleetRegistry>,
        pool: UpstreamPool,
        input: FleetInput,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, FleetError> {
        let options = ControlOptions::default();
        Self::start_with(registry, pool, input, (tasks, stop), options)
    }

    /// [`start`](Self::start) with other options.
    pub fn start_with(
        registry: Arc<FleetRegistry>,
        pool: UpstreamPool,
        input: FleetInput,
        (tasks, stop): (&TaskTracker, CancellationToken),
        options: ControlOptions,
    ) -> Result<Self, FleetError> {
        let input = input.without_api_prefix();
        let LoadedFleet { fleet, files } = input.load();
        let fleet = fleet?;
        let mut state = ControlState::default();
        let mut learn_signals = LearnSignals::default();
        if let FleetInput::Backends(flags) = &input {
            state.backends = LearnedBackends::new(flags);
            learn_signals = LearnSignals::new(flags);
        }
        let shared = Arc::new(ControlShared {
            registry,
            client: OutboundClient::new(pool),
            tasks: tasks.clone(),
            stop,
            input,
            state: Mutex::new(state),
            reloading: tokio::sync::Mutex::default(),
            settled: watch_channel::Sender::new(false),
            targets: watch_channel::Sender::default(),
            registrations_changed: Notify::new(),
            learn_signals,
            schemas: ModelSchemas::default(),
        });
        shared.install(fleet, files);
        match &shared.input {
            FleetInput::File { .. } => {
                tasks.spawn(watch::run(shared.clone(), options.watch_interval));
            }
            FleetInput::Backends(flags) => learn::start(&shared, flags),
            FleetInput::Fixed(_) => {}
        }
        let targets = shared.targets.subscribe();
        tasks.spawn(probe::run(shared.clone(), targets));
        tasks.spawn(join::expire(shared.clone()));
        Ok(Self { shared })
    }

    /// Reads the configuration again and puts it into force. On an error the old one stays.
    pub async fn reload(&self) -> Result<FleetDiff, FleetError> {
        self.shared.reload().await
    }

    /// What operators see of the control plane.
    pub fn status(&self) -> ControlStatus {
        self.shared.state().status()
    }

    /// Waits until every source has answered or failed once, so that all endpoints that can be found are
    /// in the table.
    pub async fn ready(&self) {
        let mut settled = self.shared.settled.subscribe();
        settled.wait_for(|is_settled| *is_settled).await.ok(); // The sender lives as long as `self`.
    }

    /// The addresses that a source has found, for instance the routers of a site with `dns`.
    pub fn addresses(&self, of: &Discovery) -> Vec<BackendUrl> {
        self.shared.state().addresses(of)
    }

    pub(crate) fn shared(&self) -> &Arc<ControlShared> {
        &self.shared
    }
}

impl ControlShared {
    /// The configuration in force.
    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        self.state().fleet().clone()
    }

    /// Changes the state and puts the result into force.
    pub(crate) fn update<T>(self: &Arc<Self>, change: impl FnOnce(&mut ControlState) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let targets = state.apply(&self.registry);
        let is_settled = state.is_settled();
        if let Some(targets) = targets {
            // Within the lock, so that an older list never replaces a newer one.
            self.targets.send_replace(Arc::new(targets));
        }
        drop(state);
        self.settled.send_replace(is_settled);
        result
    }

    /// Uses a source's new list.
    pub(crate) fn source_found(
        self: &Arc<Self>,
        source: &DiscoverySource,
        found: Vec<FoundEndpoint>,
    ) {
        self.update(|state| state.source_found(source, found));
    }

    /// Keeps the last list of a source that failed.
    pub(crate) fn source_failed(self: &Arc<Self>, source: &DiscoverySource, error: String) {
        self.update(|state| state.source_failed(source, error));
    }

    /// An endpoint is healthy again, perhaps with other models.
    pub(crate) fn endpoint_is_back(&self, endpoint: &EndpointKey) {
        self.learn_signals.ask_again(endpoint);
    }

    async fn reload(self: &Arc<Self>) -> Result<FleetDiff, FleetError> {
        let _turn = self.reloading.lock().await;
        if let FleetInput::Backends(flags) = &self.input {
            let old = self.fleet();
            learn::ask_all(self, flags).await;
            return Ok(FleetDiff::between(&old, &self.fleet()));
        }
        let input = self.input.clone();
        let loaded = tokio::task::spawn_blocking(move || input.load())
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let LoadedFleet { fleet, files } = loaded;
        match fleet {
            Ok(fleet) => {
                let old = self.fleet();
                let new = self.install(fleet, files);
                let diff = FleetDiff::between(&old, &new);
                tracing::info!(changes = %diff, "loaded the configuration");
                Ok(diff)
            }
            Err(error) => {
                let mut state = self.state();
                state.files = files;
                state.reload_failed(&error);
                Err(error)
            }
        }
    }

    /// Puts a configuration into force and starts the tasks of sources that are new.
    fn install(self: &Arc<Self>, fleet: Fleet, files: FileSet) -> Arc<Fleet> {
        let fleet = Arc::new(fleet);
        let started = self.update(|state| {
            state.files = files;
            state.install(fleet.clone(), &self.stop)
        });
        for (source, stop) in started {
            let running = crate::discovery::run(self.clone(), source, stop);
            self.tasks.spawn(running);
        }
        fleet
    }

    fn state(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
