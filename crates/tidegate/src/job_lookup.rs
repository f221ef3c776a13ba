//! The job service that finds the jobs of a server without models of its own, and runs none. The services
//! that run jobs are derived from it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::JobKind;
use tidegate_core::queue::Queue;
use tidegate_core::store::Store;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_net::{Client, Config as NetConfig};
use tidegate_runtime::Scratch;
use tidegate_service::{
    Config, Deps, Files, JobService, JobSettings, NoExecutor, OnLost, WebhookSecrets, free_space,
};

use crate::model_factory::{NO_TARGET, SCRATCH_FAILED};

/// What the jobs of such a server have in common.
pub(crate) struct JobLookupConfig {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) webhooks: WebhookConfig,
    pub(crate) waiting_memory: usize,
    pub(crate) keep_for: Duration,
    pub(crate) max_output: usize,
}

/// How webhooks are sent. The default is for jobs without webhooks.
#[derive(Default)]
pub(crate) struct WebhookConfig {
    pub(crate) net: NetConfig,
    pub(crate) token: Option<String>,
    pub(crate) secrets: WebhookSecrets,
    pub(crate) throttle: Duration,
    pub(crate) retry_for: Duration,
}

/// Creates the service.
pub(crate) fn job_lookup(config: JobLookupConfig) -> anyhow::Result<JobService> {
    let JobLookupConfig { webhooks, .. } = config;
    let scratch = Scratch::new(None).context(SCRATCH_FAILED)?;
    let net = Arc::new(Client::new(webhooks.net));
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
        // Workers and backends get inputs unchanged.
        spill_above: usize::MAX,
        queue: config.queue,
        store: config.store,
        cluster: None,
    };
    let settings = Config {
        webhook_token: webhooks.token,
        webhook_secrets: webhooks.secrets,
        webhook_throttle: webhooks.throttle,
        webhook_retry_for: webhooks.retry_for,
        waiting_memory: config.waiting_memory,
        jobs: JobSettings {
            stream_history: 0,
            keep_for: config.keep_for,
            keep_data_for: None,
            predictions_are: JobKind::Prediction,
            job_timeout: None,
            max_output: config.max_output,
            // Each derived service has its own rule.
            on_lost: OnLost::Fail,
            renderer: tidegate_http::renderer(PredictionRenderer::new(&[], RenderAborted::AsIs)),
        },
    };
    Ok(JobService::new(
        Arc::new(NoExecutor),
        NO_TARGET,
        deps,
        settings,
    ))
}
