//! `tidegate serve`: a model over HTTP.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use anyhow::Context;
use jiff::Timestamp;
use rustix::process::DumpableBehavior;
use tidegate_core::queue::Consumer;
use tidegate_core::record::Target;
use tidegate_core::store::Store;
use tidegate_http::access;
use tidegate_http::admin::{self, JobServices};
use tidegate_http::cog::{self, BuildInfo};
use tidegate_http::metrics;
use tidegate_http::replicate::{self, CrossApiRenderer};
use tidegate_http::runpod;
use tidegate_queue::upkeep;
use tidegate_runtime::{LoadLimit, ResourceLimits};
use tidegate_service::{
    MAX_INLINE_FILE, ModelRegistry, NoExecutor, OnLost, Resumed, Secrets, VersionMaker,
};
use tidegate_store::SqliteStore;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::banner::{Banner, BannerReset, StartupDisplay};
use super::heartbeat::Heartbeat;
use crate::cli::{self, LogFormat, ModelArgs, ServeArgs};
use crate::compat::CogEnv;
use crate::files_store::{self, FilesStoreUrl};
use crate::listen::listen;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::{LoadPolicy, ModelLoader, ModelWatcher, ServeTarget};
use crate::reload::Reload;
use crate::replicate_setup::ReplicateSetup;
use crate::shutdown::{self, ShutdownCause, Signals};
use crate::tokens::TokenSources;
use crate::usage_error::UsageError;
use crate::{build_info, data_dir, edge_config, exit, run_as, webhook_secrets};

/// Times that a job may be given to the model, when the server dies with it again and again.
const ATTEMPTS: u32 = 3;

pub(crate) async fn serve(
    args: &ServeArgs,
    env: &CogEnv,
    format: LogFormat,
) -> anyhow::Result<ExitCode> {
    let started_at = Timestamp::now();
    let wanted = ServeTarget::of(&args.dir);
    check_for_several(args, &wanted)?;
    // Before anything else is opened: most mistakes are made here.
    let one = match &wanted {
        ServeTarget::Single(dir) => Some(ModelSource::read(dir, &args.model, env)?),
        ServeTarget::Folder(_) => None,
    };
    let heartbeat = Heartbeat::of(one.as_ref())?;
    let mut signals = Signals::listen(args.await_explicit_shutdown)?;
    // A model that runs as the same user must not read this process's memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    let mut reload = Reload::default();
    let tokens = TokenSources::new(args.listen.tokens_file.clone())?.open(&mut reload)?;
    let webhook_secrets = webhook_secrets::read(
        env.webhook_secret.as_deref(),
        args.webhook.webhook_secret_file.as_deref(),
        &mut reload,
    )?;
    let edge = edge_config::edge(args, &mut reload)?;
    let changed = Arc::new(Notify::new());
    read_models_again(args, &changed, &mut reload);
    let reload = reload.listen()?;
    let listener = listen(&args.listen, tokens.as_ref()).await?;
    let url = format!(
        "{}://{}",
        edge_config::scheme(&edge),
        listener.local_addr()?
    );

    let folder = one
        .as_ref()
        .map_or_else(|| wanted.root().unwrap_or(&args.dir), |model| &model.dir);
    let data = data_dir::open(args.data_dir.as_ref(), folder, args.listen.port)?;
    let platform = ReplicateSetup::of(args, data.as_ref()).await?;
    let store_meter = data.as_ref().map(|data| data.store.meter());
    let (file_store, store) = (platform.file_store(), data.map(|data| data.store));
    let setting = setting(args, webhook_secrets.clone(), &platform, store.clone())?;

    let factory = ModelFactory::open(&args.model, env, setting)?;
    let nothing = Target {
        model: String::new(),
        version: String::new(),
        deployment: None,
    };
    let models = ModelRegistry::new(factory.desk(Arc::new(NoExecutor), nothing)?);
    let banner = Arc::new(Banner {
        models: Mutex::new(Some(models.clone())),
        url: url.clone(),
        tokens: tokens.clone(),
        several: one.is_none(),
        said: AtomicBool::new(false),
    });
    let _emptied = BannerReset(Arc::clone(&banner));
    let progress = StartupDisplay {
        mode: args.progress,
        format,
        workers: args.workers.into(),
        banner,
    };
    let screen = progress.clone();
    let loader = Arc::new(ModelLoader {
        load_policy: load_policy(args),
        owner: args.owner.clone(),
        factory,
        models: models.clone(),
        observer_for: Box::new(move |name| screen.of(name)),
        wanted,
        register: platform.register(),
        turn: tokio::sync::Mutex::default(),
    });
    models.set_version_maker(Arc::downgrade(&loader) as Weak<dyn VersionMaker>);
    let found = loader.read()?;
    match &one {
        Some(model) => progress.start().announce(model, &url),
        None => progress
            .start()
            .announce_all(found.keys().map(String::as_str), &url),
    }
    loader.open(found).await?;
    loader.open_trained().await?;
    let resumed = models
        .resume()
        .await
        .context("what a server before this one has left cannot be read")?;
    if resumed != Resumed::default() {
        tracing::info!(
            resumed.queued,
            resumed.failed,
            resumed.messages,
            "took up what was left by the server before"
        );
    }

    let (stop, goodbye, asked) = (
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let services = desks_of(models.clone());
    let watched = metrics::MetricSources {
        job_services: Arc::clone(&services),
        request_metrics: Arc::clone(&edge.request_metrics),
        store: store_meter,
        build: build(),
        started_at,
    };
    let platform = platform.face(args, &url, webhook_secrets).await?;
    let cog_config = face_config(args, env, platform.cross_api());
    let cog_face = match (&one, models.all().pop()) {
        (Some(_), Some(model)) => cog::routes(model, cog_config, asked.clone()),
        _ => cog::multi_model_routes(models.clone(), cog_config, asked.clone()),
    };
    let cog_face = match (&one, models.all().pop()) {
        (Some(script), Some(model)) if script.is_script() => {
            cog_face.merge(runpod::local::routes(model, handler_config(args, env)))
        }
        _ => cog_face,
    };
    let faces = cog_face
        .merge(admin::routes(services))
        .merge(metrics::routes(watched))
        .merge(replicate::routes(models.clone(), platform));
    // Last, so that it stands before every route.
    let faces = match tokens {
        Some(tokens) => access::require_token(faces, tokens),
        None => faces,
    };
    let http = tidegate_http::edge::serve(listener, faces, edge, stop.clone(), goodbye.clone());
    let files = async {
        match (&file_store, &store) {
            (Some(file_store), Some(store)) => file_store.upkeep(&**store).await,
            _ => std::future::pending().await,
        }
    };
    let lines = upkeep::run(
        models.lines(),
        Arc::new(models.clone()),
        Consumer::new("here"),
        upkeep::UpkeepConfig::default(),
    );
    let keeping_up = ModelWatcher {
        asked: changed,
        files: args.watch,
    }
    .run(&loader);
    let life = Heartbeat::beat(heartbeat);
    tokio::pin!(http, reload, files, lines, keeping_up, life);
    let cause = tokio::select! {
        () = &mut http => unreachable!("the listener ends only when it is told to"),
        () = &mut reload => unreachable!("it listens for ever"),
        () = &mut files => unreachable!("it looks after files for ever"),
        () = &mut lines => unreachable!("it looks after the lines for ever"),
        () = &mut keeping_up => unreachable!("it looks after models for ever"),
        () = &mut life => unreachable!("it says that it lives for ever"),
        cause = signals.next() => cause,
        () = asked.cancelled() => ShutdownCause::Requested,
    };
    tracing::info!(?cause, "shutting down");
    stop.cancel();
    tokio::select! {
        () = shutdown::drain(&models, args.drain_timeout, &goodbye, http) => {}
        () = reload => unreachable!("it listens for ever"),
        () = lines => unreachable!("it looks after the lines for ever"),
        second = signals.next() => {
            tracing::warn!("a second signal: ending at once");
            return Ok(ExitCode::from(if second == ShutdownCause::Interrupt { exit::INTERRUPTED } else { exit::TERMINATED }));
        }
    }
    Ok(ExitCode::from(cause.exit_code()))
}

/// What was said about one model does not fit several.
fn check_for_several(args: &ServeArgs, wanted: &ServeTarget) -> Result<(), UsageError> {
    let Some(root) = wanted.root() else {
        return Ok(());
    };
    let flag = match &args.model {
        ModelArgs {
            predict: Some(_), ..
        } => "--predict",
        ModelArgs { train: Some(_), .. } => "--train",
        _ => return Ok(()),
    };
    let message = format!(
        "{flag} is for one model, and `{}` is a folder of models",
        root.display()
    );
    Err(UsageError::new(message).hint("name what is to be called in the cog.yaml of each model"))
}

/// SIGHUP reads the models again; but who closes a terminal wants the server to end.
fn read_models_again(args: &ServeArgs, changed: &Arc<Notify>, reload: &mut Reload) {
    if args.watch || !reload.actions.is_empty() || !std::io::stderr().is_terminal() {
        let changed = Arc::clone(changed);
        reload.actions.push((
            "models",
            Box::new(move || {
                changed.notify_one();
                Ok(())
            }),
        ));
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

fn setting(
    args: &ServeArgs,
    webhook_secrets: Secrets,
    platform: &ReplicateSetup,
    store: Option<Arc<SqliteStore>>,
) -> Result<ModelConfig, UsageError> {
    let run_as = args.run_as.as_deref().map(run_as::read).transpose()?;
    let is_root = rustix::process::geteuid().is_root();
    if args.worker_processes.is_some() && run_as.as_ref().map_or(is_root, |user| user.uid == 0) {
        let usage = UsageError::new(
            "--worker-processes has no effect on root, and the model would run as root",
        );
        return Err(usage.hint("let the model run as somebody else: --run-as nobody"));
    }
    let keeps_large_files = args.upload.upload_url.is_some() || platform.file_store().is_some();
    Ok(ModelConfig {
        workers: args.workers.into(),
        slots: args.concurrency,
        room: None,
        line_limit: args.queue,
        cancel_grace: args.cancel_grace,
        respawn: !args.no_respawn,
        keep_for: args.keep_for,
        keep_data_for: args.keep_data_for,
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
        max_output: args.max_output,
        waiting_memory: args.waiting_memory,
        store: store.map(|store| store as Arc<dyn Store>),
        file_store: platform.file_store(),
        hidden_env: match &args.files_store {
            Some(FilesStoreUrl::Bucket { .. }) => &files_store::SECRETS,
            Some(FilesStoreUrl::Folder(_)) | None => &[],
        },
        on_lost: match args.on_lost {
            cli::OnLostArg::Retry => OnLost::Retry { attempts: ATTEMPTS },
            cli::OnLostArg::Fail => OnLost::Fail,
        },
        run_as,
        limits: ResourceLimits {
            memory: args.worker_memory.map(|bytes| bytes as u64),
            processes: args.worker_processes,
            output_file: Some(if keeps_large_files {
                args.max_file as u64
            } else {
                MAX_INLINE_FILE
            }),
        },
        outward: OutboundConfig {
            networks: args.webhook.allow_private_networks.clone(),
            max_file: args.max_file as u64,
            upload_url: args.upload.upload_url.clone(),
            webhook_secrets,
            webhook_retry_for: args.webhook.webhook_retry_for,
            renderer: platform.renderer.clone(),
        },
    })
}

fn face_config(args: &ServeArgs, env: &CogEnv, cross_api: CrossApiRenderer) -> cog::Config {
    cog::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        build: build(),
        ready_file: env.ready_file.clone(),
        cross_api,
    }
}

fn handler_config(args: &ServeArgs, env: &CogEnv) -> runpod::local::Config {
    runpod::local::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        endpoint_id: env.endpoint_id.clone(),
    }
}

fn build() -> BuildInfo {
    BuildInfo {
        version: build_info::VERSION,
        git_sha: build_info::COMMIT,
        built_at: build_info::BUILT_AT,
    }
}

/// The desks of all models.
fn desks_of(models: ModelRegistry) -> JobServices {
    Arc::new(move || models.services())
}
