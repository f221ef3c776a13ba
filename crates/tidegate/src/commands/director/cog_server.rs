//! A director whose jobs run on a Cog server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use ring::digest;
use tidegate_core::JobKind;
use tidegate_core::port::Executor;
use tidegate_core::record::Target;
use tidegate_director::CogServer;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_net::{Client, Config as NetConfig, Url, host_of};
use tidegate_queue::MemoryQueue;
use tidegate_runtime::Scratch;
use tidegate_service::{
    Config, Deps, Files, JobService, JobSettings, ModelRegistry, NoExecutor, OnLost, ServedVersion,
    WebhookSecrets, free_space,
};

use super::models::{DirectorModels, WEBHOOK_RETRY_FOR};
use crate::cli::DirectorArgs;
use crate::compat::CogEnv;
use crate::director_env::DirectorEnv;
use crate::model_factory::{NO_TARGET, SCRATCH_FAILED};
use crate::usage_error::UsageError;

/// Waits until the server is ready, and serves its model. The version is the SHA-256 of its schema.
pub(super) async fn connect(
    args: &DirectorArgs,
    env: &CogEnv,
    director_env: &DirectorEnv,
    url: &Url,
) -> anyhow::Result<DirectorModels> {
    let Some(model) = args.cog_model.clone() else {
        return Err(UsageError::new("--cog-url needs the name of the model")
            .hint("give it with --cog-model OWNER/NAME")
            .into());
    };
    let slots = args.concurrency.or(director_env.concurrency).unwrap_or(1);
    let server = CogServer::start(url.clone(), slots as usize);
    let schema = server.ready().await;
    let digest = digest::digest(&digest::SHA256, &schema);
    let version: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    tracing::info!(
        host = host_of(url),
        model,
        version,
        "the Cog server is ready"
    );
    let models = ModelRegistry::new(lookup_service(args, env)?);
    let target = Target {
        model,
        version,
        deployment: None,
    };
    models.offer(ServedVersion {
        jobs: models
            .lookup()
            .for_model(Arc::new(server) as Arc<dyn Executor>, target),
        created_at: Timestamp::now(),
        description: None,
        folder: PathBuf::new(),
        is_handler: false,
    });
    Ok(DirectorModels {
        models,
        // The server has its own weights.
        trained: None,
    })
}

/// The job service that the model's is derived from.
fn lookup_service(args: &DirectorArgs, env: &CogEnv) -> anyhow::Result<JobService> {
    let scratch = Scratch::new(None).context(SCRATCH_FAILED)?;
    let scratch_root = scratch.path().to_owned();
    let net = Arc::new(Client::new(NetConfig {
        networks: args.allow_private_networks.clone(),
        max_file: args.max_file as u64,
        ..NetConfig::default()
    }));
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
        // The server gets inputs unchanged.
        spill_above: usize::MAX,
        queue: Arc::new(MemoryQueue::default()),
        store: None,
        cluster: None,
    };
    let renderer = PredictionRenderer::new(&[], RenderAborted::AsIs);
    let config = Config {
        webhook_token: None,
        webhook_secrets: WebhookSecrets::default(),
        webhook_throttle: env.throttle(),
        webhook_retry_for: WEBHOOK_RETRY_FOR,
        waiting_memory: usize::MAX,
        jobs: JobSettings {
            stream_history: env.stream_history(),
            keep_for: std::time::Duration::ZERO,
            keep_data_for: None,
            predictions_are: JobKind::Prediction,
            job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
            max_output: args.max_output,
            on_lost: OnLost::Fail,
            renderer: tidegate_http::renderer(renderer),
        },
    };
    Ok(JobService::new(
        Arc::new(NoExecutor),
        NO_TARGET,
        deps,
        config,
    ))
}
