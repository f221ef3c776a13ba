//! The HTTP server of a director: its health and its metrics, if it has a port.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::gpu::GpuSource;
use tidegate_core::health::Health;
use tidegate_director::Director;
use tidegate_http::director_health::{self, DirectorHealth, DirectorModelHealth};
use tidegate_http::edge::{EdgeConfig, fd_limit};
use tidegate_http::metrics::{self, DirectorMetricSource, MetricSources};
use tidegate_service::ModelRegistry;
use tokio::net::TcpListener;

use crate::build_info;
use crate::cli::DirectorArgs;
use crate::http_server::HttpServer;
use crate::usage_error::UsageError;

/// The time for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most open connections.
const MAX_CONNECTIONS: usize = 64;
/// The time for open requests at the end.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// The server, if the director has a port.
pub(super) struct HealthServer(Option<HttpServer>);

impl HealthServer {
    pub(super) async fn start(
        args: &DirectorArgs,
        director: &Arc<Director>,
        models: &ModelRegistry,
        gpus: Arc<dyn GpuSource>,
        started_at: Timestamp,
    ) -> anyhow::Result<Self> {
        fd_limit::raise_limit();
        let Some(port) = args.port else {
            return Ok(Self(None));
        };
        let listener = TcpListener::bind((args.host.as_str(), port)).await;
        let listener = listener.map_err(|error| {
            UsageError::new(format!("cannot listen on {}:{port}: {error}", args.host))
                .hint("check --host, and choose another --port or none")
        })?;
        tracing::info!(
            url = format!("http://{}", listener.local_addr()?),
            "health check and metrics"
        );
        let edge = EdgeConfig {
            max_connections: MAX_CONNECTIONS,
            header_timeout: HEADER_TIMEOUT,
            header_timeout_flag: None,
            tls: None,
            origin_policy: None,
            request_metrics: Arc::default(),
            event_loops: None,
        };
        let services = models.clone();
        let sources = MetricSources {
            job_services: Arc::new(move || services.services()),
            request_metrics: Arc::clone(&edge.request_metrics),
            store: None,
            cluster: None,
            director: Some(DirectorMetricSource {
                metrics: director.metrics(),
                state: {
                    let director = Arc::clone(director);
                    Arc::new(move || director.state())
                },
            }),
            router: None,
            gpus,
            build: build_info::BUILD,
            started_at,
        };
        let (director, models) = (Arc::clone(director), models.clone());
        let health = Arc::new(move || health_of(&director, &models));
        let routes = director_health::routes(health).merge(metrics::routes(sources));
        Ok(Self(Some(HttpServer::start(listener, routes, edge))))
    }

    /// Serves requests until `work` ends.
    pub(super) async fn while_running<T>(&mut self, work: impl Future<Output = T>) -> T {
        match &mut self.0 {
            Some(server) => server.while_running(work).await,
            None => work.await,
        }
    }

    /// Closes the port.
    pub(super) async fn finish(&mut self) {
        if let Some(server) = &mut self.0 {
            server.stop_accepting();
            server.finish(LAST_RESPONSES).await;
        }
    }
}

fn health_of(director: &Director, models: &ModelRegistry) -> DirectorHealth {
    let models = models.all().into_iter().map(|model| {
        let version = model.current();
        DirectorModelHealth {
            model: model.name().to_owned(),
            version: version.id().to_owned(),
            status: version.executor().report().health,
        }
    });
    let models: Vec<_> = models.collect();
    let is_connected = director.is_connected();
    DirectorHealth {
        name: director.name().to_owned(),
        is_ready: is_connected && models.iter().all(|model| takes_jobs(model.status)),
        is_connected,
        running_jobs: director.running(),
        models,
    }
}

/// Whether a model with this health takes jobs, now or when one of them has ended.
fn takes_jobs(health: Health) -> bool {
    match health {
        Health::Ready | Health::Busy => true,
        Health::Unknown | Health::Starting | Health::SetupFailed | Health::Defunct => false,
    }
}
