//! `tidegate api`: serves the HTTP APIs of a cluster. It runs no model.

use std::process::ExitCode;
use std::sync::{Arc, Weak};

use anyhow::Context;
use axum::Router;
use tidegate_core::JobKind;
use tidegate_core::director_api::{ModelRegistration, paths};
use tidegate_core::gpu::NoGpus;
use tidegate_core::queue::Queue;
use tidegate_core::store::{Documents, Store};
use tidegate_http::RateLimits;
use tidegate_http::access::AllowedHost;
use tidegate_http::replicate::{self, CrossApiRenderer, PredictionRenderer, RenderAborted};
use tidegate_http::ui::{ServerCommand, Setting};
use tidegate_http::{cog, director, openai, runpod, workers_ai};
use tidegate_net::{Client, Config as NetConfig, Url};
use tidegate_runtime::Scratch;
use tidegate_service::{
    ApiReplicas, Cluster, ClusterMonitor, ClusterSettings, ClusterUpkeep, Config, Deps,
    DirectorCalls, Files, JobService, JobSettings, LeaseTokens, ModelCatalog, ModelRegistry,
    NoExecutor, OnLost, QueueDirectory, QueuedMarks, TrainedCatalog, TrainedVersions, VersionMaker,
    free_space,
};
use tokio_util::sync::CancellationToken;

use super::api_models;
use crate::cli::{ApiArgs, ListenArgs, OnLostArg};
use crate::cluster_backends::{ClusterBackends, open_backends};
use crate::cluster_endpoints::ClusterEndpoints;
use crate::compat::CogEnv;
use crate::director_env::DirectorEnv;
use crate::file_setup::{self, StoredFiles};
use crate::files_store::LocationUsers;
use crate::listen::OpenPort;
use crate::model_factory::{NO_TARGET, SCRATCH_FAILED};
use crate::replicate_setup::{STREAM_SECRET, persistent_secret};
use crate::shutdown::{self, Signals, Sigterm};
use crate::startup::{ListeningServer, QueueUpkeep, ServerMetrics, ServerParts, Startup, UiParts};
use crate::store_ports::DurableState;
use crate::{build_info, data_dir, director_token};

/// How often a job may start: once more after its director was lost.
const ATTEMPTS: u32 = 2;

pub(crate) async fn api(
    args: &ApiArgs,
    env: &CogEnv,
    settings: Arc<[Setting]>,
) -> anyhow::Result<ExitCode> {
    let token: Arc<str> = director_token::read(
        args.cluster.token_file.as_deref(),
        DirectorEnv::read()?.token.as_deref(),
    )?
    .into();
    // The models come before everything else, because most mistakes are made there.
    let registrations = api_models::read(args, env).await?;
    let listen = listen_args(args);
    let startup = Startup::read(&listen, &args.webhook, env, Sigterm::ShutDown)?;
    let public_url = args.public_url.as_ref();
    let server = startup.listen(&listen, public_url, OpenPort::WhenServing);
    let server = server.await?;
    // PostgreSQL and Redis may not answer for as long as it takes.
    let mut signals = Signals::listen(Sigterm::ShutDown)?;
    let opened = tokio::select! {
        opened = OpenedCluster::open(args, env, &server, &token, registrations) => opened?,
        cause = signals.next() => return Ok(ExitCode::from(cause.exit_code())),
    };
    let OpenedCluster {
        backends,
        cluster,
        files,
        renderer,
        models,
        catalog,
        trained,
        endpoints,
        pending_webhooks,
    } = opened;

    let signer = renderer.clone();
    let mut calls = DirectorCalls::new(models.clone(), Arc::clone(&catalog), cluster.clone())
        .with_stream_urls(Box::new(move |job| signer.webhook_stream_url(job)));
    if let Some(StoredFiles { store, links }) = files.clone() {
        calls = calls.with_files(store, links);
    }
    let config = director::Config {
        token,
        max_body: args.max_output.saturating_add(args.max_body),
        body_timeout: args.body_timeout,
        max_file: args.max_file as u64,
    };
    let shutdown_requested = CancellationToken::new();
    let shared = SharedParts {
        backends: &backends,
        cluster: &cluster,
        files: files.as_ref(),
        renderer: &renderer,
    };
    let (client_routes, cross_api) = client_routes(args, env, &server, &models, &shared)?;
    let routes = client_routes
        .merge(director::routes(Arc::new(calls), config))
        .merge(endpoints.routes(args)?);
    let upkeep = QueueUpkeep {
        queue: models.queue(),
        handler: Arc::new(ClusterUpkeep {
            models: models.clone(),
            cluster: cluster.clone(),
            max_deliveries: args.upkeep.max_deliveries,
        }),
        config: args.upkeep.config(),
    };
    let replicas = Arc::new(ApiReplicas::new(
        backends.store.clone() as Arc<dyn Documents>,
        consumer_name(&server),
    ));
    let (services, owned) = (models.clone(), Arc::clone(&endpoints));
    let listed = Arc::clone(&endpoints);
    let url = server.url.clone();
    let mut server = server.start(ServerParts {
        routes,
        upkeep,
        job_services: Arc::new(move || [services.services(), owned.services()].concat()),
        metrics: ServerMetrics {
            store: Some(backends.store.meter()),
            cluster: Some(Arc::new(ClusterMonitor::new(
                models.clone(),
                cluster.clone(),
            ))),
        },
        ui: UiParts {
            command: ServerCommand::Api,
            models: models.clone(),
            endpoints: Arc::new(move || listed.listed()),
            files: Some(cross_api),
            settings,
            directors: Some(Arc::clone(&cluster.directors)),
            replicas: Some(Arc::clone(&replicas)),
            file_origins: args.public_url.clone().into_iter().collect(),
        },
        gpus: Arc::new(NoGpus),
    })?;
    tracing::info!(url, pending_webhooks, "listening");
    let queue = models.queue();
    let background = Box::pin(async {
        tokio::join!(
            catalog.run(),
            trained.run(),
            cluster.queues.run(&*queue),
            models.reconcile(&cluster),
            cluster.queued_marks.run(&*cluster.leases, &*queue),
            endpoints.run(),
            replicas.run(),
            file_upkeep(files.as_ref(), &backends),
        );
    });
    let cause = server.until_shutdown(background, &shutdown_requested).await;
    let forced = server
        .drain(async |http| {
            // First, so that another process takes the endpoints over meanwhile.
            http.while_running(endpoints.release()).await;
            replicas.leave().await;
            shutdown::drain_replica(&models, args.drain_timeout, http).await;
        })
        .await;
    Ok(forced.unwrap_or_else(|| ExitCode::from(cause.exit_code())))
}

/// What an API process has before it serves requests.
struct OpenedCluster {
    backends: ClusterBackends,
    cluster: Cluster,
    files: Option<StoredFiles>,
    renderer: PredictionRenderer,
    models: ModelRegistry,
    catalog: Arc<ModelCatalog>,
    trained: Arc<TrainedCatalog>,
    endpoints: Arc<ClusterEndpoints>,
    pending_webhooks: usize,
}

impl OpenedCluster {
    /// Waits for the servers of the cluster, and reads what requests need.
    async fn open(
        args: &ApiArgs,
        env: &CogEnv,
        server: &ListeningServer,
        token: &str,
        registrations: Vec<ModelRegistration>,
    ) -> anyhow::Result<Self> {
        let backends = open_backends(args, &consumer_name(server)).await?;
        let documents = backends.store.clone() as Arc<dyn Documents>;
        let cluster = open_cluster(args, server, token, &backends);
        replicate::ensure_webhook_secret(&server.webhook_secrets, &*documents)
            .await
            .context("failed to read or store the webhook secret")?;
        let files = open_files(args, &backends).await?;
        let links = files.as_ref().map(|files| Arc::clone(&files.links));
        let renderer = renderer(args, &*documents).await?.with_files(links);
        let shared = SharedParts {
            backends: &backends,
            cluster: &cluster,
            files: files.as_ref(),
            renderer: &renderer,
        };
        let models = ModelRegistry::new(lookup_service(args, env, server, &shared)?);
        let catalog = Arc::new(ModelCatalog::new(models.clone(), Arc::clone(&documents)));
        catalog
            .refresh()
            .await
            .context("failed to read the registered models")?;
        api_models::register(&catalog, registrations).await?;
        let trained = open_trained(&models, &cluster, &documents, files.as_ref()).await?;
        let pending_webhooks = models.lookup().start_in_cluster().await?;
        let endpoints = ClusterEndpoints::open(args, server, &backends.store, &models).await?;
        Ok(Self {
            backends,
            cluster,
            files,
            renderer,
            models,
            catalog,
            trained,
            endpoints: Arc::new(endpoints),
            pending_webhooks,
        })
    }
}

/// What the processes of a cluster share.
fn open_cluster(
    args: &ApiArgs,
    server: &ListeningServer,
    token: &str,
    backends: &ClusterBackends,
) -> Cluster {
    let base_url = server.base_url(args.public_url.as_ref());
    Cluster {
        leases: backends.store.clone(),
        live: backends.live.clone(),
        publish_url: format!("{base_url}{}", paths::EVENTS).into(),
        tokens: LeaseTokens::new(token),
        queued_marks: QueuedMarks::default(),
        settings: ClusterSettings {
            lease: args.cluster.lease,
            heartbeat_interval: args.cluster.heartbeat_interval,
            reconcile_interval: args.upkeep.reconcile_interval,
        },
        queues: Arc::new(QueueDirectory::new(
            backends.store.clone() as Arc<dyn Documents>
        )),
        metrics: Arc::default(),
        directors: Arc::default(),
    }
}

/// How the server listens: the other processes use the name of `--advertise`.
fn listen_args(args: &ApiArgs) -> ListenArgs {
    let mut listen = args.listen.clone();
    let host = args.advertise.as_ref().and_then(Url::host_str);
    listen
        .allowed_hosts
        .extend(host.and_then(|host| AllowedHost::parse(host).ok()));
    listen
}

/// The name of this process among the consumers of the queue. It takes no jobs, only those of lost directors
/// for a moment.
fn consumer_name(server: &ListeningServer) -> String {
    format!("api-{}-{}", std::process::id(), server.url)
}

async fn renderer(args: &ApiArgs, documents: &dyn Documents) -> anyhow::Result<PredictionRenderer> {
    let aborted = if args.replicate_legacy_status {
        RenderAborted::AsCanceled
    } else {
        RenderAborted::AsIs
    };
    let secret = persistent_secret(Some(documents), STREAM_SECRET).await?;
    Ok(PredictionRenderer::new(&secret, aborted))
}

/// What the routes and the job service have in common.
struct SharedParts<'a> {
    backends: &'a ClusterBackends,
    cluster: &'a Cluster,
    files: Option<&'a StoredFiles>,
    renderer: &'a PredictionRenderer,
}

/// Opens the file store, if there is a data directory.
async fn open_files(
    args: &ApiArgs,
    backends: &ClusterBackends,
) -> anyhow::Result<Option<StoredFiles>> {
    let state = DurableState {
        name: backends.store.location().to_owned(),
        ports: Arc::clone(&backends.store).into(),
        files: data_dir::open_for_cluster(args.data_dir.as_ref())?,
    };
    let keep_jobs_for = file_setup::keep_jobs_for(args.keep_for, args.keep_data_for);
    let users = LocationUsers::Cluster;
    file_setup::open(&args.files, keep_jobs_for, Some(&state), users).await
}

/// Serves the trained versions.
async fn open_trained(
    models: &ModelRegistry,
    cluster: &Cluster,
    documents: &Arc<dyn Documents>,
    files: Option<&StoredFiles>,
) -> anyhow::Result<Arc<TrainedCatalog>> {
    let file_store = files.map(|files| Arc::clone(&files.store));
    let stored = Arc::new(TrainedVersions::new(Arc::clone(documents), file_store));
    let trained = TrainedCatalog::new(models.clone(), cluster.clone(), stored);
    let trained = Arc::new(trained);
    trained
        .load()
        .await
        .context("failed to read the trained versions")?;
    models.set_version_maker(Arc::downgrade(&trained) as Weak<dyn VersionMaker>);
    Ok(trained)
}

/// Removes expired files, forever.
async fn file_upkeep(files: Option<&StoredFiles>, backends: &ClusterBackends) {
    match files {
        Some(files) => files.store.upkeep(&*backends.store).await,
        None => std::future::pending().await,
    }
}

/// The routes of clients, and the renderer of the files in their outputs.
fn client_routes(
    args: &ApiArgs,
    env: &CogEnv,
    server: &ListeningServer,
    models: &ModelRegistry,
    shared: &SharedParts<'_>,
) -> anyhow::Result<(Router, CrossApiRenderer)> {
    let limits = RateLimits::new(args.rate_limit_create, args.rate_limit)
        .shared_by(shared.backends.rates.clone());
    let limits = Arc::new(limits);
    let config = replicate::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        max_file: args.max_file as u64,
        public_url: args.public_url.clone(),
        own_url: Url::parse(&server.url).context("the address of the server is not a URL")?,
        renderer: shared.renderer.clone(),
        webhook_secrets: server.webhook_secrets.clone(),
        documents: Arc::clone(&shared.backends.store) as Arc<dyn Documents>,
        limits: Arc::clone(&limits),
        files: shared.files.map(|files| Arc::clone(&files.links)),
    };
    let cross_api = config.cross_api();
    let cog = cog::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        build: build_info::BUILD,
        ready_file: env.ready_file.clone(),
        cross_api: cross_api.clone(),
        // Each process of the cluster has some of them.
        endpoints: None,
    };
    let handler = runpod::local::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        endpoint_id: env.endpoint_id.clone(),
        shared_cursors: Some(shared.backends.cursors.clone()),
    };
    let handler_routes = move |model| runpod::local::routes(model, handler.clone());
    let routes = cog::multi_model_routes(
        models.clone(),
        cog,
        Arc::new(handler_routes),
        CancellationToken::new(),
    );
    let inference = openai::routes(
        models.clone(),
        openai::Config {
            max_body: args.max_body,
            body_timeout: args.body_timeout,
            limits: Arc::clone(&limits),
        },
    )
    .merge(workers_ai::routes(
        models.clone(),
        workers_ai::Config {
            max_body: args.max_body,
            body_timeout: args.body_timeout,
            documents: Some(Arc::clone(&shared.backends.store) as Arc<dyn Documents>),
            limits,
        },
    ));
    let routes = routes
        .merge(replicate::routes(models.clone(), config))
        .merge(inference);
    Ok((routes, cross_api))
}

/// The job service that looks up the jobs of all models.
fn lookup_service(
    args: &ApiArgs,
    env: &CogEnv,
    server: &ListeningServer,
    shared: &SharedParts<'_>,
) -> anyhow::Result<JobService> {
    let scratch = Scratch::new(None).context(SCRATCH_FAILED)?;
    let net = Arc::new(Client::new(NetConfig {
        networks: args.webhook.allow_private_networks.clone(),
        webhook_timeout: args.webhook.webhook_timeout,
        max_file: args.max_file as u64,
        ..NetConfig::default()
    }));
    let scratch_root = scratch.path().to_owned();
    let deps = Deps {
        files: Files {
            net: Arc::clone(&net),
            upload_url: None,
            owner: None,
            file_store: shared.files.map(|files| Arc::clone(&files.store)),
        },
        net,
        scratch: Arc::new(move || scratch.unique_path()),
        free_space: Arc::new(move || free_space(&scratch_root)),
        // Directors get inputs unchanged.
        spill_above: usize::MAX,
        queue: shared.backends.queue.clone() as Arc<dyn Queue>,
        store: Some(shared.backends.store.clone() as Arc<dyn Store>),
        cluster: Some(shared.cluster.clone()),
    };
    let config = Config {
        webhook_token: env.webhook_token.clone(),
        webhook_secrets: server.webhook_secrets.clone(),
        webhook_throttle: env.throttle(),
        webhook_retry_for: args.webhook.webhook_retry_for,
        waiting_memory: usize::MAX,
        jobs: JobSettings {
            stream_history: env.stream_history(),
            keep_for: args.keep_for,
            keep_data_for: args.keep_data_for,
            predictions_are: JobKind::Prediction,
            job_timeout: None,
            max_output: args.max_output,
            on_lost: match args.on_lost {
                OnLostArg::Retry => OnLost::Retry { attempts: ATTEMPTS },
                OnLostArg::Fail => OnLost::Fail,
            },
            renderer: tidegate_http::renderer(shared.renderer.clone()),
        },
    };
    Ok(JobService::new(
        Arc::new(NoExecutor),
        NO_TARGET,
        deps,
        config,
    ))
}
