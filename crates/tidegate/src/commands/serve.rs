//! `tidegate serve`: serves models over HTTP.

use std::future::pending;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Weak};

use axum::Router;
use rustix::process::DumpableBehavior;
use tidegate_core::gpu::GpuSource;
use tidegate_http::cog;
use tidegate_http::replicate::{self, CrossApiRenderer};
use tidegate_http::ui::{ServerCommand, Setting};
use tidegate_http::{openai, runpod, workers_ai};
use tidegate_net::Url;
use tidegate_queue::MemoryQueue;
use tidegate_runtime::{LoadLimit, ResourceLimits};
use tidegate_service::{
    FileStore, MAX_INLINE_FILE, ModelRegistry, OnLost, SourceChanges, TrainedUpdater, VersionMaker,
    WebhookSecrets, WeightsSource,
};
use tidegate_store::{PostgresOptions, PostgresStore};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::banner::{Banner, BannerReset, StartupDisplay};
use super::heartbeat::Heartbeat;
use crate::cli::{LogFormat, OnLostArg, ServeArgs};
use crate::compat::CogEnv;
use crate::endpoint_setup::EndpointSetup;
use crate::environments::{EnvironmentStore, InstallProgress};
use crate::files_store::{self, FilesStoreUrl};
use crate::gpu_setup::GpuSetup;
use crate::join::{LoadsOnDemand, RouterMembership};
use crate::listen::OpenPort;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::{LoadPolicy, ModelLoader, ModelWatcher, ServeTarget};
use crate::reload::Reload;
use crate::replicate_setup::ReplicateSetup;
use crate::shutdown::{self, Sigterm};
use crate::startup::{
    self, ListeningServer, QueueUpkeep, ServerMetrics, ServerParts, Startup, UiParts,
};
use crate::store_ports::{DurableState, StorePorts};
use crate::usage_error::UsageError;
use crate::{build_info, data_dir, environments, postgres_setup, redis_queue, run_as};

/// How often a job may start if the server dies each time.
const ATTEMPTS: u32 = 3;
/// The concurrent jobs of an async Runpod handler that does not limit them. Runpod's own local server
/// has no limit; here each needs a socket.
const ASYNC_HANDLER_SLOTS: u32 = 128;

pub(crate) async fn serve(
    args: &ServeArgs,
    env: &CogEnv,
    format: LogFormat,
    settings: Arc<[Setting]>,
) -> anyhow::Result<ExitCode> {
    let target = ServeTarget::of(&args.dir);
    args.model.check_for(&target)?;
    // The model comes before everything else, because most mistakes are made there.
    let single = match &target {
        ServeTarget::Single(dir) => Some(ModelSource::read(dir, &args.model, env)?),
        ServeTarget::Folder(_) => None,
    };
    // Before the signals have handlers: an installation may take minutes, and Ctrl-C must end it.
    if args.install {
        environments::install_target(
            &target,
            args.model.python.as_deref(),
            &EnvironmentStore::new(args.data_dir.as_ref()),
            InstallProgress::new(args.progress, format),
        )?;
    }
    // Before the signals, too: the database may not be there yet.
    let postgres = open_postgres(args).await?;
    let heartbeat = Heartbeat::from_env(single.as_ref())?;
    let (startup, reload_requested) = read_settings(args, env)?;
    let server = startup
        .listen(&args.listen, args.public_url.as_ref(), OpenPort::AtOnce)
        .await?;
    let served = load_models(args, env, format, &server, target, single, postgres.clone()).await?;
    let endpoints = open_endpoints(args, &served).await?;
    let resumed = startup::resume_jobs(&served.models).await?;
    if let Some(endpoints) = &endpoints {
        endpoints.resume(resumed).await?;
        tracing::info!(endpoints = endpoints.names(), "serving endpoints");
        endpoints.log_how_to_start_a_worker(&server.url);
    }

    let membership = router_membership(args, &server, &served)?;
    let shutdown_requested = CancellationToken::new();
    let (models, loader, store) = (served.models.clone(), served.loader.clone(), &served.store);
    let background = Box::pin(async {
        tokio::join!(
            file_upkeep(served.replicate.file_store(), store.clone()),
            ModelWatcher::new(reload_requested, args.watch).run(&loader),
            Heartbeat::run(heartbeat),
            RouterMembership::run(membership.as_ref()),
            stop_when_replaced(postgres, &shutdown_requested),
        );
    });
    let replicate = served
        .replicate
        .config(args, &server.url, server.webhook_secrets.clone())?;
    let cross_api = replicate.cross_api();
    let mut routes = routes(
        args,
        env,
        &served,
        replicate,
        endpoints.as_ref(),
        &shutdown_requested,
    );
    if let Some(endpoints) = &endpoints {
        routes = routes.merge(endpoint_routes(args, &server, endpoints).await?);
    }
    let services = models.clone();
    let mut server = server.start(ServerParts {
        routes,
        upkeep: QueueUpkeep::of_models(&models, args.upkeep.config()),
        job_services: Arc::new(move || services.services()),
        metrics: ServerMetrics {
            store: store.as_ref().map(|store| Arc::clone(&store.metrics)),
            ..ServerMetrics::default()
        },
        ui: UiParts {
            command: ServerCommand::Serve,
            models: models.clone(),
            endpoints: match &endpoints {
                Some(endpoints) => endpoints.listed(),
                None => Arc::new(Vec::new),
            },
            files: Some(cross_api),
            settings,
            directors: None,
            replicas: None,
            file_origins: file_origins(args),
        },
        gpus: served.gpus,
    })?;
    let cause = server.until_shutdown(background, &shutdown_requested).await;
    data_dir::announce_stop(served.sqlite_folder.as_deref());
    let forced = server
        .drain(async |http| {
            http.while_running(RouterMembership::leave(membership.as_ref()))
                .await;
            shutdown::drain(&models, endpoints.as_ref(), args.drain_timeout, http).await
        })
        .await;
    Ok(forced.unwrap_or_else(|| ExitCode::from(cause.exit_code())))
}

/// Where clients download output files from: the public URL, or the server that they are uploaded to.
fn file_origins(args: &ServeArgs) -> Vec<Url> {
    let uploads = args.upload.upload_url.as_deref();
    let uploads = uploads.and_then(|url| Url::parse(url).ok());
    args.public_url.clone().into_iter().chain(uploads).collect()
}

/// The routers that the server joins.
fn router_membership(
    args: &ServeArgs,
    server: &ListeningServer,
    served: &ServedModels,
) -> Result<Option<RouterMembership>, UsageError> {
    let loads_on_demand = match load_policy(args) {
        LoadPolicy::OnDemand { .. } => LoadsOnDemand::Yes,
        LoadPolicy::Eager => LoadsOnDemand::No,
    };
    let own_url = server.base_url(args.public_url.as_ref());
    RouterMembership::new(&args.join, own_url, served.models.clone(), loads_on_demand)
}

/// The models of the server, and what they share.
struct ServedModels {
    models: ModelRegistry,
    loader: Arc<ModelLoader>,
    replicate: ReplicateSetup,
    store: Option<StorePorts>,
    /// The data directory, if the store is in it.
    sqlite_folder: Option<PathBuf>,
    gpus: Arc<dyn GpuSource>,
    /// The model, if there is only one.
    single: Option<ModelSource>,
    _banner_reset: BannerReset,
}

/// Opens the store, and starts to load the models.
async fn load_models(
    args: &ServeArgs,
    env: &CogEnv,
    format: LogFormat,
    server: &ListeningServer,
    target: ServeTarget,
    single: Option<ModelSource>,
    postgres: Option<Arc<PostgresStore>>,
) -> anyhow::Result<ServedModels> {
    let key = data_dir_key(args, &target, single.as_ref());
    let state = open_state(args, key, postgres).await?;
    let sqlite_folder = state.as_ref().and_then(DurableState::sqlite_folder);
    let sqlite_folder = sqlite_folder.map(Path::to_owned);
    let replicate = ReplicateSetup::open(args, state.as_ref()).await?;
    let queue = redis_queue::open(&args.redis, args.upkeep.max_deliveries, state.as_ref()).await?;
    let mut gpus =
        GpuSetup::open(&args.gpu, state.as_ref().and_then(DurableState::data_dir)).await?;
    let load_policy = load_policy(args);
    if let LoadPolicy::OnDemand { load_limit, .. } = &load_policy {
        gpus.evict_with(load_limit);
    }
    let gpu_source = Arc::clone(&gpus.source);
    let store = state.map(|state| state.ports);
    let webhook_secrets = server.webhook_secrets.clone();
    replicate.load_webhook_secret(&webhook_secrets).await?;
    let config = ModelConfig {
        queue,
        gpus: Some(gpus),
        ..model_config(args, webhook_secrets, &replicate, store.clone())?
    };
    let factory = ModelFactory::new(&args.model, env, config)?;
    let models = ModelRegistry::new(factory.lookup_service()?);
    let banner = Arc::new(Banner::new(
        &models,
        server,
        args.listen.tls_cert.clone(),
        single.is_none(),
    ));
    let display = StartupDisplay {
        mode: args.progress,
        format,
        watch: args.watch,
        banner: Arc::clone(&banner),
    };
    let loader = model_loader(
        args,
        (target, load_policy),
        factory,
        &models,
        &replicate,
        display.clone(),
    );
    let served = ServedModels {
        models,
        loader,
        replicate,
        store,
        sqlite_folder,
        gpus: gpu_source,
        single,
        _banner_reset: BannerReset(banner),
    };
    let found = served.loader.discover()?;
    display.announce(served.single.as_ref(), &found, &server.url);
    served.loader.load_all(found).await?;
    served.loader.load_trained().await?;
    Ok(served)
}

/// The endpoints of the command line and of the previous run; `None` when there are none.
async fn open_endpoints(
    args: &ServeArgs,
    served: &ServedModels,
) -> anyhow::Result<Option<EndpointSetup>> {
    let documents = served
        .store
        .as_ref()
        .map(|store| Arc::clone(&store.documents));
    let endpoints = EndpointSetup::open(&args.endpoint, &served.models, documents).await?;
    Ok(Some(endpoints).filter(|endpoints| !endpoints.endpoints.all().is_empty()))
}

/// The settings of the server, and what tells the watcher that SIGHUP asks for a reload.
fn read_settings(args: &ServeArgs, env: &CogEnv) -> anyhow::Result<(Startup, Arc<Notify>)> {
    // A model that runs as the same user must not read this process's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    let sigterm = if args.await_explicit_shutdown {
        Sigterm::Ignore
    } else {
        Sigterm::ShutDown
    };
    let mut startup = Startup::read(&args.listen, &args.webhook, env, sigterm)?;
    if let Some(max_connections) = args.max_connections {
        startup.edge.max_connections = max_connections;
    }
    startup.edge.header_timeout = args.header_timeout;
    startup.edge.header_timeout_flag = Some("--header-timeout");
    let reload_requested = Arc::new(Notify::new());
    reload_models_on_sighup(args, &reload_requested, &mut startup.reload);
    Ok((startup, reload_requested))
}

/// SIGHUP reloads the models, except on a terminal without another use for the signal: there it means
/// that the user closed the terminal, and the server ends.
fn reload_models_on_sighup(args: &ServeArgs, requested: &Arc<Notify>, reload: &mut Reload) {
    if args.watch || !reload.actions.is_empty() || !std::io::stderr().is_terminal() {
        let requested = Arc::clone(requested);
        reload.actions.push((
            "models",
            Box::new(move || {
                requested.notify_one();
                Ok(())
            }),
        ));
    }
}

/// Opens the database of `--postgres`.
async fn open_postgres(args: &ServeArgs) -> Result<Option<Arc<PostgresStore>>, UsageError> {
    let Some(url) = postgres_setup::url(args.postgres.as_ref()) else {
        return Ok(None);
    };
    let store = postgres_setup::open(&url, &PostgresOptions::default()).await?;
    Ok(Some(Arc::new(store)))
}

/// The jobs are in the database, or in the data directory.
async fn open_state(
    args: &ServeArgs,
    key: &Path,
    postgres: Option<Arc<PostgresStore>>,
) -> Result<Option<DurableState>, UsageError> {
    let (data_dir, port) = (args.data_dir.as_ref(), args.listen.port);
    let Some(postgres) = postgres else {
        return data_dir::open(data_dir, key, port).await;
    };
    Ok(Some(DurableState {
        name: postgres.location().to_owned(),
        ports: postgres.into(),
        files: data_dir::open_for_files(data_dir, key, port)?,
    }))
}

/// Shuts the server down if another one has taken over its database.
async fn stop_when_replaced(
    postgres: Option<Arc<PostgresStore>>,
    shutdown_requested: &CancellationToken,
) {
    if let Some(postgres) = postgres {
        postgres.until_replaced().await;
        shutdown_requested.cancel();
    }
    pending().await
}

/// The path that the default data directory belongs to.
fn data_dir_key<'a>(
    args: &'a ServeArgs,
    target: &'a ServeTarget,
    single: Option<&'a ModelSource>,
) -> &'a Path {
    match single {
        Some(model) => &model.dir,
        None => target.root().unwrap_or(&args.dir),
    }
}

fn model_loader(
    args: &ServeArgs,
    (target, load_policy): (ServeTarget, LoadPolicy),
    factory: ModelFactory,
    models: &ModelRegistry,
    replicate: &ReplicateSetup,
    display: StartupDisplay,
) -> Arc<ModelLoader> {
    let stored = replicate.trained_versions();
    let loader = Arc::new(ModelLoader {
        target,
        owner: args.owner.clone(),
        load_policy,
        factory,
        models: models.clone(),
        observer_for: Box::new(move |name, children| display.observer_for(name, children)),
        weights: Arc::clone(&stored) as Arc<dyn WeightsSource>,
        trained: Some(TrainedUpdater::new(
            models.clone(),
            stored,
            SourceChanges::Own,
        )),
    });
    models.set_version_maker(Arc::downgrade(&loader) as Weak<dyn VersionMaker>);
    loader
}

/// Deletes expired files, forever.
async fn file_upkeep(file_store: Option<Arc<FileStore>>, store: Option<StorePorts>) {
    match (&file_store, &store) {
        (Some(file_store), Some(ports)) => file_store.upkeep(&*ports.store).await,
        _ => pending().await,
    }
}

fn load_policy(args: &ServeArgs) -> LoadPolicy {
    if args.lazy || args.idle_timeout.is_some() || args.max_loaded.is_some() {
        LoadPolicy::OnDemand {
            idle_timeout: args.idle_timeout,
            load_limit: LoadLimit::new(args.max_loaded.map(usize::from)),
        }
    } else {
        LoadPolicy::Eager
    }
}

fn model_config(
    args: &ServeArgs,
    webhook_secrets: WebhookSecrets,
    replicate: &ReplicateSetup,
    store: Option<StorePorts>,
) -> Result<ModelConfig, UsageError> {
    let run_as = run_as::model_user(args.run_as.as_deref(), args.worker_processes)?;
    Ok(ModelConfig {
        workers: args.workers,
        gpus: None,
        autoscaling: args.scaling.of(args.workers),
        spare: args.scaling.spare_kind(!args.no_respawn)?,
        slots: args.concurrency,
        max_slots: None,
        async_handler_slots: Some(ASYNC_HANDLER_SLOTS),
        queue_limit: args.queue,
        cancel_grace: args.cancel_grace,
        respawn: !args.no_respawn,
        keep_for: args.keep_for,
        keep_data_for: args.keep_data_for,
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
        max_output: args.max_output,
        waiting_memory: args.waiting_memory,
        store: store.map(|ports| ports.store),
        queue: Arc::new(MemoryQueue::default()),
        file_store: replicate.file_store(),
        hidden_env: match &args.files.files_store {
            Some(FilesStoreUrl::Bucket { .. }) => &files_store::SECRETS,
            Some(FilesStoreUrl::Folder(_)) | None => &[],
        },
        on_lost: match args.on_lost {
            OnLostArg::Retry => OnLost::Retry { attempts: ATTEMPTS },
            OnLostArg::Fail => OnLost::Fail,
        },
        run_as,
        limits: resource_limits(args, replicate),
        batch: args.batch.settings(),
        environments: EnvironmentStore::new(args.data_dir.as_ref()),
        install: args.install.then_some(InstallProgress::Log),
        outbound: OutboundConfig {
            networks: args.webhook.allow_private_networks.clone(),
            max_file: args.max_file as u64,
            upload_url: args.upload.upload_url.clone(),
            webhook_secrets,
            webhook_retry_for: args.webhook.webhook_retry_for,
            webhook_timeout: args.webhook.webhook_timeout,
            renderer: replicate.renderer.clone(),
        },
    })
}

/// Output files that become data URIs have a lower limit than those that are uploaded or stored.
fn resource_limits(args: &ServeArgs, replicate: &ReplicateSetup) -> ResourceLimits {
    let inline = args.upload.upload_url.is_none() && replicate.file_store().is_none();
    ResourceLimits {
        memory: args.worker_memory.map(|bytes| bytes as u64),
        processes: args.worker_processes,
        output_file: Some(if inline {
            MAX_INLINE_FILE
        } else {
            args.max_file as u64
        }),
    }
}

/// The routes of the APIs of Cog, Replicate, OpenAI and Workers AI and, for handlers, of Runpod's local API.
fn routes(
    args: &ServeArgs,
    env: &CogEnv,
    served: &ServedModels,
    replicate: replicate::Config,
    endpoints: Option<&EndpointSetup>,
    shutdown: &CancellationToken,
) -> Router {
    let models = served.models.clone();
    let cog = cog_config(args, env, replicate.cross_api(), endpoints);
    let limits = Arc::clone(&replicate.limits);
    let replicate_routes = replicate::routes(models.clone(), replicate)
        .merge(openai::routes(
            models.clone(),
            openai::Config {
                max_body: args.max_body,
                body_timeout: args.body_timeout,
                limits: Arc::clone(&limits),
            },
        ))
        .merge(workers_ai::routes(
            models.clone(),
            workers_ai::Config {
                max_body: args.max_body,
                body_timeout: args.body_timeout,
                documents: served
                    .store
                    .as_ref()
                    .map(|store| Arc::clone(&store.documents)),
                limits,
            },
        ));
    let config = handler_config(args, env);
    let handler_routes = move |model| runpod::local::routes(model, config.clone());
    let (Some(_), Some(model)) = (&served.single, models.all().pop()) else {
        let routes =
            cog::multi_model_routes(models, cog, Arc::new(handler_routes), shutdown.clone());
        return routes.merge(replicate_routes);
    };
    let routes = cog::routes(Arc::clone(&model), cog, shutdown.clone()).merge(replicate_routes);
    if model.current().is_handler {
        routes.merge(handler_routes(model))
    } else {
        routes
    }
}

/// The routes of Runpod's platform API.
async fn endpoint_routes(
    args: &ServeArgs,
    server: &ListeningServer,
    endpoints: &EndpointSetup,
) -> anyhow::Result<Router> {
    let base_url = server.base_url(args.public_url.as_ref());
    let config = endpoints
        .config(&args.endpoint, server, base_url, args.max_body)
        .await?;
    Ok(runpod::platform::routes(
        endpoints.endpoints.clone(),
        config,
    ))
}

fn cog_config(
    args: &ServeArgs,
    env: &CogEnv,
    cross_api: CrossApiRenderer,
    endpoints: Option<&EndpointSetup>,
) -> cog::Config {
    cog::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        build: build_info::BUILD,
        ready_file: env.ready_file.clone(),
        cross_api,
        endpoints: endpoints.map(|setup| setup.endpoints.clone()),
    }
}

fn handler_config(args: &ServeArgs, env: &CogEnv) -> runpod::local::Config {
    runpod::local::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        endpoint_id: env.endpoint_id.clone(),
        shared_cursors: None,
    }
}
