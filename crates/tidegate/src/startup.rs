//! The startup sequence that `serve` and `platform` share.
//!
//! 1. [`Startup::read`]: signals, tokens, webhook secrets, TLS. A mistake in them ends the program
//!    before it listens.
//! 2. [`Startup::listen`]: the server has its port, and no request is served yet.
//! 3. The command sets up its models or endpoints; [`resume_jobs`] resumes those of the previous run.
//! 4. [`ListeningServer::start`]: requests are served.
//! 5. [`RunningServer::until_shutdown`] and [`RunningServer::drain`], with the rules of `shutdown`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use jiff::Timestamp;
use tidegate_core::gpu::GpuSource;
use tidegate_core::port::BoxFuture;
use tidegate_core::queue::{Queue, UpkeepHandler};
use tidegate_core::store::StoreMetrics;
use tidegate_http::access::{self, AllowedHost, AllowedOrigin, OriginPolicy, Tokens};
use tidegate_http::admin::{self, JobServices};
use tidegate_http::edge::EdgeConfig;
use tidegate_http::metrics::{self, MetricSources};
use tidegate_http::replicate::CrossApiRenderer;
use tidegate_http::ui::{self, EndpointSource, ServerCommand, Setting, UiData, UiSources};
use tidegate_net::Url;
use tidegate_queue::upkeep::{self, UpkeepConfig};
use tidegate_service::{
    ApiReplicas, ClusterMonitor, DirectorSightings, ModelRegistry, Resumed, WebhookSecrets,
};
use tokio_util::sync::CancellationToken;

use crate::cli::{ListenArgs, WebhookArgs};
use crate::compat::CogEnv;
use crate::http_server::HttpServer;
use crate::listen::{self, BoundAddresses, OpenPort};
use crate::reload::Reload;
use crate::shutdown::{self, ShutdownCause, Signals, Sigterm};
use crate::tokens::TokenSources;
use crate::usage_error::UsageError;
use crate::{build_info, edge_config, webhook_secrets};

/// What a server reads before it listens.
pub(crate) struct Startup {
    started_at: Timestamp,
    signals: Signals,
    tokens: Option<Tokens>,
    webhook_secrets: WebhookSecrets,
    pub(crate) edge: EdgeConfig,
    /// What SIGHUP reloads; a command may add to it.
    pub(crate) reload: Reload,
}

impl Startup {
    pub(crate) fn read(
        listen: &ListenArgs,
        webhook: &WebhookArgs,
        env: &CogEnv,
        sigterm: Sigterm,
    ) -> anyhow::Result<Self> {
        let started_at = Timestamp::now();
        let signals = Signals::listen(sigterm)?;
        let mut reload = Reload::default();
        let tokens = TokenSources::new(listen.tokens_file.clone())?.open(&mut reload)?;
        let webhook_secrets = webhook_secrets::read(
            env.webhook_secret.as_deref(),
            webhook.webhook_secret_file.as_deref(),
            &mut reload,
        )?;
        let edge = edge_config::read(listen, &mut reload)?;
        Ok(Self {
            started_at,
            signals,
            tokens,
            webhook_secrets,
            edge,
            reload,
        })
    }

    /// Takes the port.
    pub(crate) async fn listen(
        mut self,
        args: &ListenArgs,
        public_url: Option<&Url>,
        open: OpenPort,
    ) -> anyhow::Result<ListeningServer> {
        let reload = Box::pin(self.reload.listen()?);
        if self.tokens.is_none() {
            self.edge.origin_policy = Some(origin_policy(args, public_url));
        }
        let listeners = listen::bind(args, self.tokens.as_ref(), open).await?;
        let url = format!(
            "{}://{}",
            edge_config::scheme(&self.edge),
            listeners.local_addr()?
        );
        Ok(ListeningServer {
            started_at: self.started_at,
            signals: self.signals,
            tokens: self.tokens,
            webhook_secrets: self.webhook_secrets,
            edge: self.edge,
            reload,
            listeners,
            url,
            allowed_origins: args.allowed_origins.clone(),
        })
    }
}

/// What a server without tokens accepts. A name that it listens on is one of its own.
pub(crate) fn origin_policy(args: &ListenArgs, public_url: Option<&Url>) -> OriginPolicy {
    let listen_host = AllowedHost::parse(&args.host).ok();
    let hosts = args.allowed_hosts.iter().cloned().chain(listen_host);
    OriginPolicy::new(hosts.collect(), args.allowed_origins.clone(), public_url)
}

/// A server that has its port and accepts no connection yet.
pub(crate) struct ListeningServer {
    started_at: Timestamp,
    signals: Signals,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) webhook_secrets: WebhookSecrets,
    edge: EdgeConfig,
    reload: BoxFuture<()>,
    listeners: BoundAddresses,
    /// The address that it listens on.
    pub(crate) url: String,
    allowed_origins: Vec<AllowedOrigin>,
}

impl ListeningServer {
    /// The URL at which workers reach the server, without a trailing slash.
    pub(crate) fn base_url(&self, public_url: Option<&Url>) -> String {
        public_url.map_or_else(
            || self.url.clone(),
            |url| url.as_str().trim_end_matches('/').to_owned(),
        )
    }

    /// Serves the routes, the admin API, the metrics and the web UI, all of them behind the tokens.
    pub(crate) fn start(self, parts: ServerParts) -> Result<RunningServer, UsageError> {
        let ServerParts {
            routes,
            upkeep,
            job_services,
            metrics,
            ui,
            gpus,
        } = parts;
        let ui_sources = UiSources {
            command: ui.command,
            build: build_info::BUILD,
            started_at: self.started_at,
            job_services: Arc::clone(&job_services),
            models: Some(ui.models),
            endpoints: ui.endpoints,
            files: ui.files,
            router: None,
            cluster: metrics.cluster.clone(),
            directors: ui.directors,
            replicas: ui.replicas,
            file_origins: ui.file_origins.clone(),
            gpus: Arc::clone(&gpus),
            settings: ui.settings,
        };
        let ui_data = UiData::new(ui_sources);
        let sources = MetricSources {
            job_services: Arc::clone(&job_services),
            request_metrics: Arc::clone(&self.edge.request_metrics),
            store: metrics.store,
            cluster: metrics.cluster,
            director: None,
            router: None,
            gpus: Arc::clone(&gpus),
            build: build_info::BUILD,
            started_at: self.started_at,
        };
        let routes = routes
            .merge(admin::routes(Arc::clone(&job_services), gpus))
            .merge(metrics::routes(sources))
            .merge(ui_data.routes())
            .merge(ui::page_routes(&ui.file_origins));
        // Last, because it covers only the routes that exist already.
        let routes = match self.tokens {
            Some(tokens) => access::require_token(routes, tokens),
            None => routes,
        };
        // Outside of the tokens: a browser asks for permission without one.
        let routes = access::allow_origins(routes, &self.allowed_origins);
        let queue_upkeep = upkeep::run(upkeep.queue, upkeep.handler, upkeep.config);
        Ok(RunningServer {
            http: HttpServer::start(self.listeners.listen()?, routes, self.edge),
            reload: self.reload,
            queue_upkeep: Box::pin(queue_upkeep),
            load_history: Box::pin(ui_data.clone().record_load()),
            signals: self.signals,
            job_services,
            ui: ui_data,
        })
    }
}

/// What a server serves.
pub(crate) struct ServerParts {
    /// The APIs for clients.
    pub(crate) routes: Router,
    pub(crate) upkeep: QueueUpkeep,
    pub(crate) job_services: JobServices,
    pub(crate) metrics: ServerMetrics,
    pub(crate) ui: UiParts,
    /// The GPUs of the machine, if the server uses them.
    pub(crate) gpus: Arc<dyn GpuSource>,
}

/// What the web UI of a server shows, besides its jobs.
pub(crate) struct UiParts {
    pub(crate) command: ServerCommand,
    pub(crate) models: ModelRegistry,
    pub(crate) endpoints: EndpointSource,
    /// Renders the files in outputs.
    pub(crate) files: Option<CrossApiRenderer>,
    pub(crate) settings: Arc<[Setting]>,
    /// The directors of a cluster.
    pub(crate) directors: Option<Arc<DirectorSightings>>,
    /// The API processes of a cluster.
    pub(crate) replicas: Option<Arc<ApiReplicas>>,
    /// Where output files are downloaded from, if not from the address of the page.
    pub(crate) file_origins: Vec<Url>,
}

/// What a server shows in its metrics besides jobs and requests.
#[derive(Default)]
pub(crate) struct ServerMetrics {
    pub(crate) store: Option<Arc<StoreMetrics>>,
    pub(crate) cluster: Option<Arc<ClusterMonitor>>,
}

/// What keeps the queue of a server consistent.
pub(crate) struct QueueUpkeep {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) handler: Arc<dyn UpkeepHandler>,
    pub(crate) config: UpkeepConfig,
}

impl QueueUpkeep {
    /// The upkeep of a server that runs the jobs itself.
    pub(crate) fn of_models(models: &ModelRegistry, config: UpkeepConfig) -> Self {
        Self {
            queue: models.queue(),
            handler: Arc::new(models.clone()),
            config,
        }
    }
}

/// A server that serves requests.
pub(crate) struct RunningServer {
    http: HttpServer,
    reload: BoxFuture<()>,
    queue_upkeep: BoxFuture<()>,
    load_history: BoxFuture<()>,
    signals: Signals,
    job_services: JobServices,
    ui: UiData,
}

impl RunningServer {
    /// Serves requests until a signal arrives or `requested` is canceled. `background` runs meanwhile;
    /// it must not end.
    pub(crate) async fn until_shutdown(
        &mut self,
        background: impl Future<Output = ()>,
        requested: &CancellationToken,
    ) -> ShutdownCause {
        let Self {
            http,
            reload,
            queue_upkeep,
            load_history,
            signals,
            job_services: _,
            ui: _,
        } = self;
        let cause = http.while_running(async {
            tokio::select! {
                () = reload => unreachable!("reload never ends"),
                () = queue_upkeep => unreachable!("queue upkeep never ends"),
                () = load_history => unreachable!("the load is recorded forever"),
                () = background => unreachable!("background tasks never end"),
                cause = signals.next() => cause,
                () = requested.cancelled() => ShutdownCause::Requested,
            }
        });
        let cause = cause.await;
        tracing::info!(?cause, "shutting down");
        cause
    }

    /// Runs `drain` to its end. A second signal stops it, and its exit code is returned.
    pub(crate) async fn drain(
        &mut self,
        drain: impl AsyncFnOnce(&mut HttpServer),
    ) -> Option<ExitCode> {
        self.ui.begin_drain();
        tokio::select! {
            () = drain(&mut self.http) => None,
            () = &mut self.reload => unreachable!("reload never ends"),
            () = &mut self.queue_upkeep => unreachable!("queue upkeep never ends"),
            second = self.signals.second(|| shutdown::log_wait(&(self.job_services)())) => {
                tracing::warn!("received a second signal, exiting now");
                Some(ExitCode::from(second.forced_exit_code()))
            }
        }
    }
}

/// Resumes the jobs and webhooks of the previous run.
pub(crate) async fn resume_jobs(models: &ModelRegistry) -> anyhow::Result<Resumed> {
    let resumed = models
        .resume()
        .await
        .context("failed to read the jobs of the previous run")?;
    if resumed != Resumed::default() {
        tracing::info!(
            resumed.queued,
            resumed.failed,
            resumed.messages,
            resumed.is_loading,
            "resumed jobs of the previous run"
        );
    }
    Ok(resumed)
}
