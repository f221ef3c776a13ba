//! The web UI: its page, embedded in the program, and the data that the page shows.
//!
//! `/ui/assets/` and the page at every other path below `/ui/` need no token; `/ui/api/` does. The page runs
//! models with the public APIs and uses the admin API for lists of jobs, so only what these do not have is
//! here: [`docs/reference/ui.md`](../../../../docs/reference/ui.md).

mod api_docs;
mod assets;
mod changes;
mod history;
mod job_events;
mod jobs;
mod load;
mod models;
mod pages;
mod publisher;
mod sections;
mod session;
mod settings;
mod state_detail;
mod status;
mod trained_models;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::HeaderMap;
use axum::middleware::from_fn;
use axum::routing::{any, get};
use jiff::Timestamp;
use tidegate_core::gpu::GpuSource;
use tidegate_service::{
    ApiReplicas, ClusterMonitor, ClusterState, DirectorSightings, JobService, ModelRegistry,
};
use tokio::time::MissedTickBehavior;
use url::Url;

pub(crate) use pages::{docs_redirect, index_response, redirect};
pub use settings::Setting;
pub use wire::ServerCommand;

use crate::access::{Identity, Role, require_operator};
use crate::admin::{JobServices, no_such_method, no_such_path};
use crate::cog::BuildInfo;
use crate::metrics::RouterMetricSource;
use crate::replicate::CrossApiRenderer;
use crate::runpod::platform::Endpoint;
use history::LoadHistory;
use publisher::Publisher;

/// The prefix of the paths of the page.
const ROOT: &str = "/ui/";
/// The prefix of the paths of its data.
const API_ROOT: &str = "/ui/api/";

/// What the web UI shows, and where it comes from.
pub struct UiSources {
    /// The command that runs the server.
    pub command: ServerCommand,
    /// The version of this build.
    pub build: BuildInfo,
    /// When the server started.
    pub started_at: Timestamp,
    /// The job services.
    pub job_services: JobServices,
    /// The models; `None` for a router.
    pub models: Option<ModelRegistry>,
    /// The endpoints of Runpod's platform API.
    pub endpoints: EndpointSource,
    /// Renders the files in outputs; `None` if the server stores no files.
    pub files: Option<CrossApiRenderer>,
    /// The models and endpoints of a router.
    pub router: Option<RouterMetricSource>,
    /// The cluster that this API process belongs to.
    pub cluster: Option<Arc<ClusterMonitor>>,
    /// The directors of that cluster.
    pub directors: Option<Arc<DirectorSightings>>,
    /// The API processes of that cluster.
    pub replicas: Option<Arc<ApiReplicas>>,
    /// Where output files are downloaded from, if not from the server itself.
    pub file_origins: Vec<Url>,
    /// The GPUs of the machine.
    pub gpus: Arc<dyn GpuSource>,
    /// The settings of the command.
    pub settings: Arc<[Setting]>,
}

/// Lists the endpoints of Runpod's platform API.
pub type EndpointSource = Arc<dyn Fn() -> Vec<ListedEndpoint> + Send + Sync>;

/// An endpoint of Runpod's platform API.
#[derive(Clone)]
pub struct ListedEndpoint {
    /// The name in paths.
    pub name: String,
    /// Its job service and workers; `None` if another process of the cluster owns it.
    pub endpoint: Option<Arc<Endpoint>>,
}

/// The state of the data routes.
struct UiState {
    sources: UiSources,
    /// A random id of this process: sequence numbers and positions of another one mean nothing.
    epoch: String,
    /// The load since the start of the server.
    history: Mutex<LoadHistory>,
    publisher: Publisher,
    /// Whether the server shuts down, so that streams without an end must not delay it.
    is_draining: AtomicBool,
}

impl UiState {
    fn new(sources: UiSources) -> Self {
        let mut random = [0; 8];
        getrandom::fill(&mut random).expect("the system provides random bytes");
        Self {
            sources,
            epoch: format!("{:016x}", u64::from_ne_bytes(random)),
            history: Mutex::default(),
            publisher: Publisher::default(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// The state of the cluster that this process belongs to.
    async fn cluster_state(&self) -> Option<Arc<ClusterState>> {
        match &self.sources.cluster {
            Some(monitor) => Some(monitor.state().await),
            None => None,
        }
    }

    fn lock_history(&self) -> MutexGuard<'_, LoadHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job services; at least the one that looks up jobs.
    fn job_services(&self) -> Vec<JobService> {
        let mut services = (self.sources.job_services)();
        if services.is_empty() {
            let lookup = self.sources.models.iter().map(|models| models.lookup());
            services.extend(lookup.cloned());
        }
        services
    }
}

/// Whether a client sees the whole server: an administrator, or everyone if there are no tokens and so no
/// other account to protect.
fn is_operator(client: &Identity) -> bool {
    client.role == Role::Admin || client.account.is_anonymous()
}

/// The routes of the page. Output files may be downloaded from `file_origins`, besides the server itself.
pub fn page_routes(file_origins: &[Url]) -> Router {
    Router::new()
        .route("/ui", get(pages::add_slash))
        .route("/ui/", get(pages::page))
        .route("/ui/{*path}", get(pages::page))
        .route("/ui/assets/{*path}", get(pages::asset))
        .with_state(pages::content_security_policy(file_origins))
}

/// The data of the web UI. Clones share their state.
#[derive(Clone)]
pub struct UiData(Arc<UiState>);

impl UiData {
    /// Shows what these sources have.
    pub fn new(sources: UiSources) -> Self {
        Self(Arc::new(UiState::new(sources)))
    }

    /// Records the load of the server, forever.
    pub async fn record_load(self) {
        let mut ticks = tokio::time::interval(history::STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let cluster = self.0.cluster_state().await;
            let sample = self.0.load_sample(cluster.as_deref());
            self.0.lock_history().add(sample);
        }
    }

    /// Ends the streams of dashboards soon: they have no end of their own.
    pub fn begin_drain(&self) {
        self.0.is_draining.store(true, Ordering::Relaxed);
    }

    /// The routes of the data.
    pub fn routes(&self) -> Router {
        api_routes(Arc::clone(&self.0))
    }
}

fn api_routes(state: Arc<UiState>) -> Router {
    Router::new()
        .route("/ui/api/session", get(session::show))
        .route("/ui/api/models", get(models::list))
        .route("/ui/api/models/{*name}", get(models::show))
        .route("/ui/api/endpoints/{name}", get(models::show_endpoint))
        .route("/ui/api/jobs/{account}/{id}", get(jobs::show))
        .route(
            "/ui/api/jobs/{account}/{id}/events",
            get(job_events::follow),
        )
        .route("/ui/api/snapshot", get(changes::snapshot))
        .route("/ui/api/changes", get(changes::changes))
        .route(
            "/ui/api/config",
            get(settings::show).route_layer(from_fn(require_operator)),
        )
        .route("/ui/api/docs", get(api_docs::show))
        .route("/admin/status", get(status::show))
        .route("/ui/api", any(no_such_path))
        .route("/ui/api/", any(no_such_path))
        .route("/ui/api/{*path}", any(no_such_path))
        .method_not_allowed_fallback(no_such_method)
        .with_state(state)
}

/// Whether a request needs no token: it loads the page, which has no data, or is redirected to it.
pub(crate) fn is_open(path: &str, headers: &HeaderMap) -> bool {
    match path {
        "/" => pages::asks_for_page(headers),
        "/ui" | "/docs" => true,
        path => path.starts_with(ROOT) && !is_api(path),
    }
}

/// Whether a path belongs to the data of the page.
pub(crate) fn is_api(path: &str) -> bool {
    path.starts_with(API_ROOT) || path == API_ROOT.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT;

    use super::*;

    #[test]
    fn only_the_page_needs_no_token() {
        let none = HeaderMap::new();
        for open in ["/ui", "/ui/", "/ui/jobs/x", "/ui/assets/0/main.js", "/docs"] {
            assert!(is_open(open, &none), "{open}");
        }
        for closed in ["/", "/ui/api", "/ui/api/", "/ui/api/session", "/uix", "/v1"] {
            assert!(!is_open(closed, &none), "{closed}");
        }
        let browser = HeaderMap::from_iter([(ACCEPT, "text/html,*/*".parse().unwrap())]);
        assert!(is_open("/", &browser));
        assert!(!is_open("/ui/api/session", &browser));
    }
}
