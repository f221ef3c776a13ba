//! The HTTP service of the router: the APIs of OpenAI, Workers AI and Cog in front of a fleet of backends.
//!
//! Requests for inferences take the short way: the path is matched by hand, and the request is forwarded
//! without extractors. Everything else is a router of handlers: lists of models, health, metrics, and the
//! operation of the fleet.

mod access;
mod admin;
mod background;
mod batch;
mod catalog;
mod error;
mod event;
mod form_model;
mod inference;
mod join;
pub(crate) mod model_metrics;
mod pending_stream;
mod planner;
mod record;
mod relay_body;
mod reply;
mod request_body;
mod route;
mod sites;
pub(crate) mod telemetry;
mod trace_context;
mod translate;
mod translated_body;
mod usage_tail;
mod websocket;
mod websocket_frames;
mod websocket_relay;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use hyper::{Request, Response};
use jiff::Timestamp;
use tidegate_core::counters::Counter;
use tidegate_core::gpu::NoGpus;
use tidegate_core::store::StoreError;
use tidegate_router::FleetRegistry;
use tidegate_router::control::FleetControl;
use tidegate_router::forward::RequestForwarder;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::batch::BatchPorts;
pub(crate) use self::batch::QueuedError;

use self::access::AccountDirectory;
use self::background::Background;
use self::batch::BatchQueue;
use self::route::InferenceRoute;
use self::telemetry::GatewayTelemetry;
use crate::admin::JobServices;
use crate::cog::BuildInfo;
use crate::edge::EdgeService;
use crate::metrics::{MetricSources, RouterMetricSource};
use crate::request_metrics::RequestMetrics;
use crate::ui::{ServerCommand, Setting, UiData, UiSources};

/// What a gateway is made of.
pub struct GatewayParts {
    /// The models and their endpoints.
    pub registry: Arc<FleetRegistry>,
    /// The configuration.
    pub control: FleetControl,
    /// Sends requests to backends.
    pub forwarder: RequestForwarder,
    /// The counters of the edge.
    pub request_metrics: Arc<RequestMetrics>,
    /// The version of this build.
    pub build: BuildInfo,
    /// When the server started.
    pub started_at: Timestamp,
    /// Where queued requests are stored; `None` if the router has no store.
    pub batches: Option<BatchPorts>,
    /// The settings of the command, for operators.
    pub settings: Arc<[Setting]>,
}

/// The HTTP service of the router. Clones share their state.
#[derive(Clone)]
pub struct Gateway {
    state: Arc<GatewayState>,
    routes: Router,
    ui: UiData,
}

/// What all requests share.
pub(crate) struct GatewayState {
    registry: Arc<FleetRegistry>,
    control: FleetControl,
    forwarder: RequestForwarder,
    /// The relays of WebSocket connections.
    tasks: TaskTracker,
    background: Background,
    accounts: AccountDirectory,
    telemetry: Arc<GatewayTelemetry>,
    build: BuildInfo,
    started_at: Timestamp,
    is_draining: AtomicBool,
    /// Ends the WebSocket connections.
    close_websockets: CancellationToken,
    /// Requests that were refused before their model was known.
    refusals: Counter,
    /// The queued requests, if the router has a store. Set when the state is created.
    batches: OnceLock<BatchQueue>,
}

impl Gateway {
    /// Creates the service, and starts the task that sends inference events until `stop` is cancelled.
    pub fn start(parts: GatewayParts, tasks: &TaskTracker, stop: CancellationToken) -> Self {
        let (telemetry, events) = GatewayTelemetry::new(Arc::clone(&parts.registry));
        let telemetry = Arc::new(telemetry);
        let sender = Arc::clone(&telemetry);
        let sender_stop = stop.clone();
        tasks.spawn(async move { sender.run(events, sender_stop).await });
        let state = Arc::new(GatewayState {
            registry: parts.registry,
            control: parts.control,
            forwarder: parts.forwarder,
            tasks: tasks.clone(),
            background: Background::here(tasks),
            accounts: AccountDirectory::default(),
            telemetry,
            build: parts.build,
            started_at: parts.started_at,
            is_draining: AtomicBool::new(false),
            close_websockets: CancellationToken::new(),
            refusals: Counter::default(),
            batches: OnceLock::new(),
        });
        let job_services: JobServices = match &parts.batches {
            Some(ports) => {
                let models = ports.models.clone();
                Arc::new(move || models.services())
            }
            None => Arc::new(Vec::new),
        };
        if let Some(ports) = parts.batches {
            let queue = BatchQueue::new(ports, Arc::downgrade(&state));
            state.batches.set(queue).ok(); // It is set once, here.
        }
        let router = RouterMetricSource {
            registry: Arc::clone(&state.registry),
            telemetry: Arc::clone(&state.telemetry),
            control: state.control.clone(),
        };
        let metrics = MetricSources {
            job_services: Arc::clone(&job_services),
            request_metrics: parts.request_metrics,
            store: None,
            cluster: None,
            director: None,
            router: Some(router.clone()),
            gpus: Arc::new(NoGpus),
            build: state.build.clone(),
            started_at: state.started_at,
        };
        let ui = UiSources {
            command: ServerCommand::Router,
            build: state.build.clone(),
            started_at: state.started_at,
            job_services,
            models: None,
            endpoints: Arc::new(Vec::new),
            files: None,
            router: Some(router),
            cluster: None,
            directors: None,
            replicas: None,
            file_origins: Vec::new(),
            gpus: Arc::new(NoGpus),
            settings: parts.settings,
        };
        let ui = UiData::new(ui);
        let routes = admin::routes(Arc::clone(&state), metrics, &ui);
        let load = ui.clone().record_load();
        tasks.spawn(async move { stop.run_until_cancelled_owned(load).await });
        Self { state, routes, ui }
    }

    /// Opens the job services of all models that have had queued requests. Their jobs can be resumed then.
    pub async fn open_batch_models(&self) -> Result<(), StoreError> {
        match self.state.batches.get() {
            Some(batches) => batches.open_known_models().await,
            None => Ok(()),
        }
    }

    /// Lets the health check fail, so that load balancers send no more requests, and ends the streams of
    /// dashboards, which have no end of their own.
    pub fn begin_drain(&self) {
        self.state.is_draining.store(true, Ordering::Relaxed);
        self.ui.begin_drain();
    }

    /// Ends the WebSocket connections with a close frame to both sides.
    pub fn close_websockets(&self) {
        self.state.close_websockets.cancel();
    }
}

impl GatewayState {
    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

impl EdgeService for Gateway {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        match InferenceRoute::of(request.method(), request.uri()) {
            Some(route) => {
                let (parts, body) = request.into_parts();
                if websocket::is_upgrade(&parts.method, &parts.headers) {
                    return Box::pin(self.state.upgrade(route, parts, body)).await;
                }
                // hyper keeps the memory of its service's future as long as the connection lives; a stream
                // does not need that of the forwarding.
                Box::pin(self.state.infer(route, parts, body)).await
            }
            None => EdgeService::call(&self.routes, request).await,
        }
    }
}
