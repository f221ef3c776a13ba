//! `tidegate platform`: serves endpoints to Runpod's clients and workers, without models. `tidegate serve
//! --endpoint` serves them next to models; `endpoint_setup.rs` is shared.

use std::future::pending;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_core::gpu::NoGpus;
use tidegate_http::runpod::platform as api;
use tidegate_http::ui::{ServerCommand, Setting};
use tidegate_net::Config as NetConfig;
use tidegate_queue::MemoryQueue;
use tidegate_queue::upkeep::UpkeepConfig;
use tidegate_service::{JobService, ModelRegistry, WebhookSecrets};
use tokio_util::sync::CancellationToken;

use crate::cli::PlatformArgs;
use crate::compat::CogEnv;
use crate::data_dir;
use crate::endpoint_setup::EndpointSetup;
use crate::job_lookup::{JobLookupConfig, WebhookConfig, job_lookup};
use crate::listen::OpenPort;
use crate::shutdown::{self, Sigterm};
use crate::startup::{self, QueueUpkeep, ServerMetrics, ServerParts, Startup, UiParts};
use crate::store_ports::DurableState;

pub(crate) async fn platform(
    args: &PlatformArgs,
    env: &CogEnv,
    settings: Arc<[Setting]>,
) -> anyhow::Result<ExitCode> {
    let startup = Startup::read(&args.listen, &args.webhook, env, Sigterm::ShutDown)?;
    let server = startup
        .listen(&args.listen, args.public_url.as_ref(), OpenPort::AtOnce)
        .await?;

    let data = data_dir::open(
        args.data_dir.as_ref(),
        Path::new("platform"),
        args.listen.port,
    )
    .await?;
    let documents = data.as_ref().map(|data| Arc::clone(&data.ports.documents));
    let webhook_secrets = server.webhook_secrets.clone();
    let models = ModelRegistry::new(lookup_service(args, env, webhook_secrets, data.as_ref())?);
    let endpoints = EndpointSetup::open(&args.endpoint, &models, documents).await?;
    endpoints
        .resume(startup::resume_jobs(&models).await?)
        .await?;

    let base_url = server.base_url(args.public_url.as_ref());
    let config = endpoints
        .config(&args.endpoint, &server, base_url, args.max_body)
        .await?;
    tracing::info!(url = server.url, endpoints = endpoints.names(), "listening");
    endpoints.log_how_to_start_a_worker(&server.url);
    let services = models.clone();
    let mut server = server.start(ServerParts {
        routes: api::server_routes(endpoints.endpoints.clone(), config),
        upkeep: QueueUpkeep::of_models(&models, UpkeepConfig::default()),
        job_services: Arc::new(move || services.services()),
        metrics: ServerMetrics {
            store: data.as_ref().map(|data| Arc::clone(&data.ports.metrics)),
            ..ServerMetrics::default()
        },
        ui: UiParts {
            command: ServerCommand::Platform,
            models: models.clone(),
            endpoints: endpoints.listed(),
            // Workers send files as part of their output.
            files: None,
            settings,
            directors: None,
            replicas: None,
            file_origins: Vec::new(),
        },
        gpus: Arc::new(NoGpus),
    })?;
    let cause = server
        .until_shutdown(pending(), &CancellationToken::new())
        .await;
    data_dir::announce_stop(data.as_ref().and_then(DurableState::sqlite_folder));
    let forced = server
        .drain(async |http| {
            shutdown::drain(&models, Some(&endpoints), args.drain_timeout, http).await
        })
        .await;
    Ok(forced.unwrap_or_else(|| ExitCode::from(cause.exit_code())))
}

/// The job service that looks up the jobs of all endpoints.
fn lookup_service(
    args: &PlatformArgs,
    env: &CogEnv,
    webhook_secrets: WebhookSecrets,
    data: Option<&DurableState>,
) -> anyhow::Result<JobService> {
    job_lookup(JobLookupConfig {
        queue: Arc::new(MemoryQueue::default()),
        store: data.map(|data| Arc::clone(&data.ports.store)),
        webhooks: WebhookConfig {
            net: NetConfig {
                networks: args.webhook.allow_private_networks.clone(),
                webhook_timeout: args.webhook.webhook_timeout,
                ..NetConfig::default()
            },
            token: env.webhook_token.clone(),
            secrets: webhook_secrets,
            throttle: env.throttle(),
            retry_for: args.webhook.webhook_retry_for,
        },
        waiting_memory: args.waiting_memory,
        keep_for: args.keep_for,
        max_output: args.max_output,
    })
}
