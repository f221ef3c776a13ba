//! `tidegate platform`: endpoints for Runpod's clients and workers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use tidegate_core::JobKind;
use tidegate_core::queue::Consumer;
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, Store};
use tidegate_http::access;
use tidegate_http::admin::{self, JobServices};
use tidegate_http::cog::BuildInfo;
use tidegate_http::metrics;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_http::runpod::platform::{
    self as face, Batches, Endpoint, EndpointFactory, EndpointLimits, EndpointRegistry,
    MODEL_PREFIX, OpenEndpointError, StreamCursors, WorkerKeys,
};
use tidegate_net::{Client, Config as NetConfig};
use tidegate_queue::{MemoryQueue, upkeep};
use tidegate_remote::RemoteExecutor;
use tidegate_runtime::Scratch;
use tidegate_service::{
    Config, Deps, Files, JobService, ModelRegistry, NoExecutor, OnLost, Resumed, Secrets,
    ServedVersion, free_space,
};
use tidegate_store::MemoryDocuments;
use tokio_util::sync::CancellationToken;

use crate::cli::PlatformArgs;
use crate::compat::CogEnv;
use crate::data_dir::{self, OpenDataDir};
use crate::listen::listen;
use crate::reload::Reload;
use crate::replicate_setup::secret;
use crate::shutdown::{ShutdownCause, Signals};
use crate::tokens::TokenSources;
use crate::usage_error::UsageError;
use crate::{build_info, edge_config, exit, webhook_secrets};

/// Times that a job may be begun, when the server ends with it again and again. That is rarely the job's doing: it
/// runs elsewhere, and its worker keeps it meanwhile. Workers that are lost with it are counted apart.
const ATTEMPTS: u32 = 100;
/// The longest that a body may make no progress.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long open answers may take in the end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long nothing is handed out after a start that found jobs.
const REST: Duration = Duration::from_secs(4);
/// From what the keys of workers are made.
const WORKERS: &str = "runpod-worker-secret";
/// Endpoints have no versions.
const VERSION: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(crate) async fn platform(args: &PlatformArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let started_at = Timestamp::now();
    let mut signals = Signals::listen(false)?;
    let mut reload = Reload::default();
    let tokens = TokenSources::new(args.listen.tokens_file.clone())?.open(&mut reload)?;
    let webhook_secrets = webhook_secrets::read(
        env.webhook_secret.as_deref(),
        args.webhook.webhook_secret_file.as_deref(),
        &mut reload,
    )?;
    let edge = edge_config::plain_edge(&args.listen, &mut reload)?;
    let reload = reload.listen()?;
    let listener = listen(&args.listen, tokens.as_ref()).await?;
    let url = format!(
        "{}://{}",
        edge_config::scheme(&edge),
        listener.local_addr()?
    );

    let data = data_dir::open(
        args.data_dir.as_ref(),
        Path::new("platform"),
        args.listen.port,
    )?;
    let documents = data
        .as_ref()
        .map(|data| Arc::clone(&data.store) as Arc<dyn Documents>);
    let store_meter = data.as_ref().map(|data| data.store.meter());
    let models = ModelRegistry::new(desk(args, env, webhook_secrets, data.as_ref())?);
    let endpoints = open(args, &models, documents.clone()).await?;
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
    if resumed.queued > 0 {
        // Some of them may still be in the hands of workers, which say so in their pings.
        endpoints
            .all()
            .iter()
            .for_each(|endpoint| endpoint.remote.pause_handout(REST));
    }

    let batches = Batches::new(
        documents
            .clone()
            .unwrap_or_else(|| Arc::new(MemoryDocuments::default())),
        endpoints.clone(),
    );
    batches
        .resume()
        .await
        .context("the batches of before cannot be read")?;
    let stream_cursors = StreamCursors::default();
    if let Some(documents) = &documents {
        stream_cursors
            .restore(&**documents)
            .await
            .context("what was read of streams cannot be read")?;
    }
    let config = face::Config {
        max_body: args.max_body,
        body_timeout: BODY_TIMEOUT,
        worker_keys: match &tokens {
            Some(_) => Some(WorkerKeys::new(
                &secret(documents.as_deref(), WORKERS).await?,
            )),
            None => None,
        },
        base_url: args.public_url.as_ref().map_or_else(
            || url.clone(),
            |url| url.as_str().trim_end_matches('/').to_owned(),
        ),
        limits: if args.cloud_limits {
            EndpointLimits::cloud()
        } else {
            EndpointLimits::default()
        },
        batches: batches.clone(),
        stream_cursors: stream_cursors.clone(),
    };
    let watched = metrics::MetricSources {
        job_services: desks_of(models.clone()),
        request_metrics: Arc::clone(&edge.request_metrics),
        store: store_meter,
        build: BuildInfo {
            version: build_info::VERSION,
            git_sha: build_info::COMMIT,
            built_at: build_info::BUILT_AT,
        },
        started_at,
    };
    let faces = face::routes(endpoints.clone(), config)
        .merge(admin::routes(desks_of(models.clone())))
        .merge(metrics::routes(watched));
    // Last, so that it stands before every route.
    let faces = match tokens {
        Some(tokens) => access::require_token(faces, tokens),
        None => faces,
    };
    let (stop, goodbye) = (CancellationToken::new(), CancellationToken::new());
    let http = tidegate_http::edge::serve(listener, faces, edge, stop.clone(), goodbye.clone());
    let names: Vec<String> = endpoints
        .all()
        .iter()
        .map(|endpoint| endpoint.name.clone())
        .collect();
    tracing::info!(url, endpoints = names.join(","), "the platform takes jobs");
    let lines = upkeep::run(
        models.lines(),
        Arc::new(models.clone()),
        Consumer::new("here"),
        upkeep::UpkeepConfig::default(),
    );
    tokio::pin!(http, reload, lines);
    let cause = tokio::select! {
        () = &mut lines => unreachable!("it looks after the lines for ever"),
        () = &mut http => unreachable!("the listener ends only when it is told to"),
        () = &mut reload => unreachable!("it listens for ever"),
        cause = signals.next() => cause,
    };
    tracing::info!(?cause, "shutting down");
    tokio::select! {
        // Workers bring their results while they are waited for.
        () = &mut http => unreachable!("the listener ends only when it is told to"),
        () = &mut lines => unreachable!("it looks after the lines for ever"),
        () = async {
            batches.close().await;
            drain(&endpoints, &models, args.drain_timeout).await;
        } => {}
        second = signals.next() => {
            tracing::warn!("a second signal: ending at once");
            return Ok(ExitCode::from(if second == ShutdownCause::Interrupt { exit::INTERRUPTED } else { exit::TERMINATED }));
        }
    }
    stop.cancel();
    if tokio::time::timeout(LAST_ANSWERS, &mut http).await.is_err() {
        goodbye.cancel();
        http.await;
    }
    if let Some(documents) = &documents
        && let Err(error) = stream_cursors.save(&**documents).await
    {
        tracing::warn!(error = %tidegate_core::chain(&error), "what was read of streams is lost: they will be read again from the start");
    }
    Ok(ExitCode::from(cause.exit_code()))
}

/// Gives out no more jobs, and waits for those that workers have. What is not over in time is neither ended
/// nor forgotten: the next server takes it up, and the result too if its worker brings it then.
async fn drain(endpoints: &EndpointRegistry, models: &ModelRegistry, patience: Duration) {
    endpoints
        .all()
        .iter()
        .for_each(|endpoint| endpoint.remote.close());
    if tokio::time::timeout(patience, models.close(FOR_EVER))
        .await
        .is_err()
    {
        tracing::warn!(
            ?patience,
            "some jobs are not over and are left to the next start"
        );
    }
}

/// Opens the endpoints of the command line and those of before.
async fn open(
    args: &PlatformArgs,
    models: &ModelRegistry,
    documents: Option<Arc<dyn Documents>>,
) -> anyhow::Result<EndpointRegistry> {
    let config = tidegate_remote::Config {
        ping_timeout: args.worker_timeout,
        ..tidegate_remote::Config::default()
    };
    let (offering, withdrawing) = (models.clone(), models.clone());
    let open = move |name: &str| {
        let remote = RemoteExecutor::new(config);
        let target = Target {
            model: format!("{MODEL_PREFIX}{name}"),
            version: VERSION.to_owned(),
            deployment: None,
        };
        let jobs = offering.lookup().beside(Arc::new(remote.clone()), target);
        offering.offer(ServedVersion {
            jobs: jobs.clone(),
            created_at: Timestamp::now(),
            description: None,
            folder: PathBuf::new(),
        });
        Endpoint {
            name: name.to_owned(),
            jobs,
            remote,
        }
    };
    let close = move |endpoint: &Endpoint| withdrawing.withdraw(&endpoint.jobs.target().model);
    let endpoints = EndpointRegistry::new(
        documents,
        EndpointFactory {
            open: Box::new(open),
            close: Box::new(close),
        },
    );
    endpoints
        .resume()
        .await
        .context("the endpoints of before cannot be read")?;
    for name in &args.endpoints {
        endpoints.add(name).await.map_err(|error| match error {
            OpenEndpointError::Name(error) => {
                UsageError::new(format!("--endpoint `{name}`: {error}")).into()
            }
            OpenEndpointError::Store(_) => anyhow::Error::new(error),
        })?;
    }
    Ok(endpoints)
}

/// A desk that finds the jobs of all endpoints, with everything that theirs need.
fn desk(
    args: &PlatformArgs,
    env: &CogEnv,
    webhook_secrets: Secrets,
    data: Option<&OpenDataDir>,
) -> anyhow::Result<JobService> {
    let scratch = Scratch::new(None)
        .context("could not make a folder for temporary files; is TMPDIR writable?")?;
    let net = Arc::new(Client::new(NetConfig {
        networks: args.webhook.allow_private_networks.clone(),
        ..NetConfig::default()
    }));
    let scratch_root = scratch.path().to_owned();
    let tools = Deps {
        executor: Arc::new(NoExecutor),
        files: Files {
            net: Arc::clone(&net),
            upload_to: None,
            owner: None,
            own: None,
        },
        net,
        scratch: Arc::new(move || scratch.unique_path()),
        room: Arc::new(move || free_space(&scratch_root)),
        // Inputs go to workers as they are.
        spill_above: usize::MAX,
        queue: Arc::new(MemoryQueue::default()),
        store: data.map(|data| Arc::clone(&data.store) as Arc<dyn Store>),
    };
    let config = Config {
        webhook_token: env.webhook_token.clone(),
        webhook_secrets,
        webhook_throttle: env.throttle,
        webhook_retry_for: args.webhook.webhook_retry_for,
        stream_history: 0,
        keep_for: args.keep_for,
        keep_data_for: None,
        predictions_are: JobKind::Prediction,
        job_timeout: None,
        max_output: args.max_output,
        waiting_memory: args.waiting_memory,
        target: Target {
            model: String::new(),
            version: String::new(),
            deployment: None,
        },
        on_lost: OnLost::Retry { attempts: ATTEMPTS },
        renderer: tidegate_http::renderer(
            PredictionRenderer::new(&[], RenderAborted::AsIs),
            tidegate_http::runpod::platform::renderer,
        ),
    };
    Ok(JobService::new(tools, config))
}

/// The desks of all endpoints.
fn desks_of(models: ModelRegistry) -> JobServices {
    Arc::new(move || models.all().iter().map(|model| model.jobs()).collect())
}
