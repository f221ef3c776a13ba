//! `tidegate platform`: serves endpoints to Runpod's clients and workers.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, Store};
use tidegate_core::{JobKind, chain};
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_http::runpod::platform::{
    self as api, Batches, Endpoint, EndpointFactory, EndpointLimits, EndpointRegistry,
    MODEL_PREFIX, OpenEndpointError, StreamCursors, WorkerKeys,
};
use tidegate_net::{Client, Config as NetConfig};
use tidegate_queue::MemoryQueue;
use tidegate_remote::RemoteExecutor;
use tidegate_runtime::Scratch;
use tidegate_service::{
    Config, Deps, Files, JobService, JobSettings, ModelRegistry, NoExecutor, OnLost, ServedVersion,
    WebhookSecrets, free_space,
};
use tidegate_store::MemoryDocuments;
use tokio_util::sync::CancellationToken;

use crate::cli::PlatformArgs;
use crate::compat::CogEnv;
use crate::data_dir::{self, OpenDataDir};
use crate::model_factory::{NO_TARGET, SCRATCH_FAILED};
use crate::replicate_setup::persistent_secret;
use crate::shutdown::Sigterm;
use crate::startup::{self, ListeningServer, Startup};
use crate::usage_error::UsageError;

/// How often a job may start if the server dies each time. The job is rarely the reason: it runs on a
/// worker, which keeps it meanwhile. Lost workers are counted separately.
const ATTEMPTS: u32 = 100;
/// How long a request body may make no progress.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the last responses, after the jobs have ended.
const LAST_RESPONSES: Duration = Duration::from_secs(2);
/// Longer than any drain timeout.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long the server hands out no jobs after a start that resumed some.
const HANDOUT_PAUSE: Duration = Duration::from_secs(4);
/// The name of the secret from which the keys of workers are derived.
const WORKER_SECRET: &str = "runpod-worker-secret";
/// Endpoints have no versions.
const VERSION: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(crate) async fn platform(args: &PlatformArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let startup = Startup::read(&args.listen, &args.webhook, env, Sigterm::ShutDown)?;
    let server = startup
        .listen(&args.listen, args.public_url.as_ref())
        .await?;

    let data = data_dir::open(
        args.data_dir.as_ref(),
        Path::new("platform"),
        args.listen.port,
    )?;
    let documents = data
        .as_ref()
        .map(|data| Arc::clone(&data.store) as Arc<dyn Documents>);
    let webhook_secrets = server.webhook_secrets.clone();
    let models = ModelRegistry::new(lookup_service(args, env, webhook_secrets, data.as_ref())?);
    let endpoints = open_endpoints(args, &models, documents.clone()).await?;
    resume_jobs(&models, &endpoints).await?;
    let batches = resume_batches(&endpoints, documents.clone()).await?;
    let stream_cursors = restore_cursors(documents.as_deref()).await?;

    let config = api_config(
        args,
        &server,
        documents.as_deref(),
        &batches,
        &stream_cursors,
    )
    .await?;
    log_start(&server, &endpoints);
    let services = models.clone();
    let mut server = server.start(
        api::routes(endpoints.clone(), config),
        &models,
        Arc::new(move || services.all().iter().map(|model| model.jobs()).collect()),
        data.as_ref().map(|data| data.store.meter()),
    );
    let cause = server
        .until_shutdown(pending(), &CancellationToken::new())
        .await;
    let drain = async {
        batches.close().await;
        drain(&endpoints, &models, args.drain_timeout).await;
    };
    // Workers deliver their results meanwhile, so the server still accepts connections.
    if let Some(code) = server
        .drain(async |http| http.while_running(drain).await)
        .await
    {
        return Ok(code);
    }
    server.finish_responses(LAST_RESPONSES).await;
    save_cursors(&stream_cursors, documents.as_deref()).await;
    Ok(ExitCode::from(cause.exit_code()))
}

/// Hands out no more jobs, and waits for those that workers run. Unfinished jobs are kept: the next
/// run resumes them, and accepts their results from the workers.
async fn drain(endpoints: &EndpointRegistry, models: &ModelRegistry, timeout: Duration) {
    endpoints
        .all()
        .iter()
        .for_each(|endpoint| endpoint.remote.close());
    if tokio::time::timeout(timeout, models.close(FOREVER))
        .await
        .is_err()
    {
        tracing::warn!(?timeout, "left unfinished jobs to the next run");
    }
}

async fn resume_jobs(models: &ModelRegistry, endpoints: &EndpointRegistry) -> anyhow::Result<()> {
    let resumed = startup::resume_jobs(models).await?;
    if resumed.queued > 0 || resumed.is_loading {
        // Workers may still run some of these jobs, and name them in their next heartbeat.
        endpoints
            .all()
            .iter()
            .for_each(|endpoint| endpoint.remote.pause_handout(HANDOUT_PAUSE));
    }
    Ok(())
}

async fn resume_batches(
    endpoints: &EndpointRegistry,
    documents: Option<Arc<dyn Documents>>,
) -> anyhow::Result<Batches> {
    let documents = documents.unwrap_or_else(|| Arc::new(MemoryDocuments::default()));
    let batches = Batches::new(documents, endpoints.clone());
    batches
        .resume()
        .await
        .context("failed to read the batches of the previous run")?;
    Ok(batches)
}

async fn restore_cursors(documents: Option<&dyn Documents>) -> anyhow::Result<StreamCursors> {
    let cursors = StreamCursors::default();
    if let Some(documents) = documents {
        cursors
            .restore(documents)
            .await
            .context("failed to read the stream cursors of the previous run")?;
    }
    Ok(cursors)
}

async fn api_config(
    args: &PlatformArgs,
    server: &ListeningServer,
    documents: Option<&dyn Documents>,
    batches: &Batches,
    stream_cursors: &StreamCursors,
) -> anyhow::Result<api::Config> {
    Ok(api::Config {
        max_body: args.max_body,
        body_timeout: BODY_TIMEOUT,
        worker_keys: worker_keys(server, documents).await?,
        base_url: base_url(args, server),
        limits: if args.cloud_limits {
            EndpointLimits::cloud()
        } else {
            EndpointLimits::default()
        },
        batches: batches.clone(),
        stream_cursors: stream_cursors.clone(),
    })
}

async fn save_cursors(cursors: &StreamCursors, documents: Option<&dyn Documents>) {
    if let Some(documents) = documents
        && let Err(error) = cursors.save(documents).await
    {
        tracing::warn!(error = %chain(&error), "failed to save stream cursors; clients will read streams from the start");
    }
}

/// The keys that workers authenticate with, if the server has tokens.
async fn worker_keys(
    server: &ListeningServer,
    documents: Option<&dyn Documents>,
) -> anyhow::Result<Option<WorkerKeys>> {
    Ok(match &server.tokens {
        Some(_) => Some(WorkerKeys::new(
            &persistent_secret(documents, WORKER_SECRET).await?,
        )),
        None => None,
    })
}

fn base_url(args: &PlatformArgs, server: &ListeningServer) -> String {
    args.public_url.as_ref().map_or_else(
        || server.url.clone(),
        |url| url.as_str().trim_end_matches('/').to_owned(),
    )
}

fn log_start(server: &ListeningServer, endpoints: &EndpointRegistry) {
    let names: Vec<String> = endpoints
        .all()
        .iter()
        .map(|endpoint| endpoint.name.clone())
        .collect();
    tracing::info!(url = server.url, endpoints = names.join(","), "listening");
}

/// Opens the endpoints of the previous run and those of the command line.
async fn open_endpoints(
    args: &PlatformArgs,
    models: &ModelRegistry,
    documents: Option<Arc<dyn Documents>>,
) -> anyhow::Result<EndpointRegistry> {
    let config = tidegate_remote::Config {
        ping_timeout: args.worker_timeout,
        ..tidegate_remote::Config::default()
    };
    let (opening, closing) = (models.clone(), models.clone());
    let factory = EndpointFactory {
        open: Box::new(move |name| open_endpoint(&opening, name, config)),
        close: Box::new(move |endpoint| closing.withdraw(&endpoint.jobs.target().model)),
    };
    let endpoints = EndpointRegistry::new(documents, factory);
    endpoints
        .resume()
        .await
        .context("failed to read the endpoints of the previous run")?;
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

fn open_endpoint(models: &ModelRegistry, name: &str, config: tidegate_remote::Config) -> Endpoint {
    let remote = RemoteExecutor::new(config);
    let target = Target {
        model: format!("{MODEL_PREFIX}{name}"),
        version: VERSION.to_owned(),
        deployment: None,
    };
    let jobs = models.lookup().for_model(Arc::new(remote.clone()), target);
    models.offer(ServedVersion {
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
}

/// The job service that looks up the jobs of all endpoints. It runs none itself; those of the
/// endpoints are derived from it.
fn lookup_service(
    args: &PlatformArgs,
    env: &CogEnv,
    webhook_secrets: WebhookSecrets,
    data: Option<&OpenDataDir>,
) -> anyhow::Result<JobService> {
    let scratch = Scratch::new(None).context(SCRATCH_FAILED)?;
    let net = Arc::new(Client::new(NetConfig {
        networks: args.webhook.allow_private_networks.clone(),
        ..NetConfig::default()
    }));
    let scratch_root = scratch.path().to_owned();
    let deps = Deps {
        files: Files {
            net: Arc::clone(&net),
            upload_url: None,
            owner: None,
            file_store: None,
        },
        net,
        scratch: Arc::new(move || scratch.unique_path()),
        free_space: Arc::new(move || free_space(&scratch_root)),
        // Workers get inputs unchanged.
        spill_above: usize::MAX,
        queue: Arc::new(MemoryQueue::default()),
        store: data.map(|data| Arc::clone(&data.store) as Arc<dyn Store>),
    };
    let config = Config {
        webhook_token: env.webhook_token.clone(),
        webhook_secrets,
        webhook_throttle: env.throttle,
        webhook_retry_for: args.webhook.webhook_retry_for,
        waiting_memory: args.waiting_memory,
        jobs: JobSettings {
            stream_history: 0,
            keep_for: args.keep_for,
            keep_data_for: None,
            predictions_are: JobKind::Prediction,
            job_timeout: None,
            max_output: args.max_output,
            on_lost: OnLost::Retry { attempts: ATTEMPTS },
            renderer: tidegate_http::renderer(
                PredictionRenderer::new(&[], RenderAborted::AsIs),
                tidegate_http::runpod::platform::renderer,
            ),
        },
    };
    Ok(JobService::new(
        Arc::new(NoExecutor),
        NO_TARGET,
        deps,
        config,
    ))
}
