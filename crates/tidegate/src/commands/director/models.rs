//! The models of a director.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_director::TrainedModels;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_queue::MemoryQueue;
use tidegate_runtime::{LoadLimit, Observer, Phase, ResourceLimits};
use tidegate_service::{ModelRegistry, OnLost, WebhookSecrets, WeightsSource};

use super::trained::TrainedOnDirector;
use crate::cli::{DirectorArgs, LogFormat, ProgressMode};
use crate::compat::CogEnv;
use crate::director_env::DirectorEnv;
use crate::environments::{self, EnvironmentStore, InstallProgress};
use crate::gpu_setup::GpuSetup;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::model_source::ModelSource;
use crate::models::{LoadPolicy, ModelLoader, ServeTarget};
use crate::run_as;
use crate::usage_error::UsageError;

/// How long the terminal webhook of a job is retried, if the API does not say otherwise.
pub(super) const WEBHOOK_RETRY_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Variables that the model's code must not see: their values may contain passwords.
const HIDDEN: [&str; 1] = ["TIDEGATE_REDIS"];

/// The models of a director.
pub(super) struct DirectorModels {
    pub(super) models: ModelRegistry,
    /// Serves the versions that were trained from them.
    pub(super) trained: Option<Arc<dyn TrainedModels>>,
}

/// Loads the models. The weights of the versions that were trained from them come from `weights`.
pub(super) async fn load(
    args: &DirectorArgs,
    env: &CogEnv,
    director_env: &DirectorEnv,
    weights: Arc<dyn WeightsSource>,
    mut gpus: GpuSetup,
) -> anyhow::Result<DirectorModels> {
    let target = ServeTarget::of(&args.dir);
    args.model.check_for(&target)?;
    let load_policy = load_policy(args);
    if let LoadPolicy::OnDemand { load_limit, .. } = &load_policy {
        gpus.evict_with(load_limit);
    }
    let config = model_config(args, director_env, gpus)?;
    let factory = ModelFactory::new(&args.model, env, config)?;
    let models = ModelRegistry::new(factory.lookup_service()?);
    let loader = ModelLoader {
        target,
        owner: args.owner.clone(),
        load_policy,
        factory,
        models: models.clone(),
        observer_for: Box::new(|name, _| {
            Arc::new(LogObserver {
                model: name.to_owned(),
            })
        }),
        weights,
        trained: None,
    };
    let found: BTreeMap<String, ModelSource> = loader.discover()?;
    loader.load_all(found).await?;
    Ok(DirectorModels {
        models,
        trained: Some(Arc::new(TrainedOnDirector::new(loader))),
    })
}

/// Installs the packages of the models. A model of several whose packages fail is served without them.
pub(super) fn install_packages(args: &DirectorArgs, format: LogFormat) -> anyhow::Result<()> {
    let progress = InstallProgress::new(ProgressMode::Auto, format);
    environments::install_target(
        &ServeTarget::of(&args.dir),
        args.model.python.as_deref(),
        &EnvironmentStore::new(args.data_dir.as_ref()),
        progress,
    )
}

/// Whether models are loaded when a job needs them.
pub(super) fn loads_on_demand(args: &DirectorArgs) -> bool {
    args.max_loaded.is_some() || args.idle_timeout.is_some()
}

fn load_policy(args: &DirectorArgs) -> LoadPolicy {
    if loads_on_demand(args) {
        LoadPolicy::OnDemand {
            idle_timeout: args.idle_timeout,
            load_limit: LoadLimit::new(args.max_loaded.map(usize::from)),
        }
    } else {
        LoadPolicy::Eager
    }
}

fn model_config(
    args: &DirectorArgs,
    director_env: &DirectorEnv,
    gpus: GpuSetup,
) -> Result<ModelConfig, UsageError> {
    let run_as = run_as::model_user(args.run_as.as_deref(), args.worker_processes)?;
    Ok(ModelConfig {
        workers: args.workers,
        gpus: Some(gpus),
        autoscaling: None,
        spare: None,
        slots: args.concurrency.or(director_env.concurrency),
        max_slots: None,
        async_handler_slots: None,
        queue_limit: 0,
        // Jobs wait in the queue of the cluster.
        queue: Arc::new(MemoryQueue::default()),
        cancel_grace: args.cancel_grace,
        respawn: !args.no_respawn,
        // The API has the ended jobs.
        keep_for: Duration::ZERO,
        keep_data_for: None,
        job_timeout: args.job_timeout.filter(|limit| !limit.is_zero()),
        max_output: args.max_output,
        waiting_memory: usize::MAX,
        store: None,
        file_store: None,
        hidden_env: &HIDDEN,
        // The API decides.
        on_lost: OnLost::Fail,
        run_as,
        batch: args.batch.settings(),
        limits: ResourceLimits {
            memory: args.worker_memory.map(|bytes| bytes as u64),
            processes: args.worker_processes,
            output_file: Some(args.max_file as u64),
        },
        outbound: OutboundConfig {
            networks: args.allow_private_networks.clone(),
            max_file: args.max_file as u64,
            upload_url: args.upload.upload_url.clone(),
            // The API signs and sends webhooks.
            webhook_secrets: WebhookSecrets::default(),
            webhook_retry_for: WEBHOOK_RETRY_FOR,
            renderer: PredictionRenderer::new(&[], RenderAborted::AsIs),
            ..OutboundConfig::unrestricted()
        },
        environments: EnvironmentStore::new(args.data_dir.as_ref()),
        install: args.install.then_some(InstallProgress::Log),
    })
}

/// Logs what a model prints outside of jobs, and what its processes do.
struct LogObserver {
    model: String,
}

impl Observer for LogObserver {
    fn phase(&self, child: usize, phase: Phase<'_>) {
        let model = &self.model;
        match phase {
            Phase::Log { text, .. } => {
                tracing::info!(target: "model", model, "{}", text.trim_end());
            }
            Phase::Loading { pid } => tracing::info!(model, child, pid, "loading model"),
            Phase::Ready { after, slots } => {
                tracing::info!(model, child, ?after, slots, "model ready");
            }
            Phase::Failed { reason } => {
                tracing::error!(model, child, reason, "failed to load the model");
            }
            Phase::Died { reason, pause } => {
                tracing::warn!(
                    model,
                    child,
                    reason,
                    ?pause,
                    "model process died, replacing it"
                );
            }
            Phase::Defunct { reason } => {
                tracing::error!(
                    model,
                    child,
                    reason,
                    "model process died and is not replaced"
                );
            }
        }
    }
}
