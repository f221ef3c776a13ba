//! `tidegate api DIR…`: registers the models of folders without running them, so that jobs are accepted and wait
//! before the first director starts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director_api::ModelRegistration;
use tidegate_queue::MemoryQueue;
use tidegate_runtime::{BatchSettings, LoadLimit, ResourceLimits};
use tidegate_service::{ModelCatalog, ModelRegistry, OnLost, ServedModel, TrainedVersions};
use tidegate_store::MemoryDocuments;

use crate::cli::{ApiArgs, ModeArg, ModelArgs};
use crate::compat::CogEnv;
use crate::environments::EnvironmentStore;
use crate::model_factory::{ModelConfig, ModelFactory, OutboundConfig};
use crate::models::{LoadPolicy, ModelLoader, ServeTarget};
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;

/// Reads the schemas of the models in the folders of the command line.
pub(super) async fn read(args: &ApiArgs, env: &CogEnv) -> anyhow::Result<Vec<ModelRegistration>> {
    let mut found = Vec::new();
    for dir in &args.dirs {
        found.extend(read_folder(args, env, dir).await?);
    }
    Ok(found)
}

/// Registers models. A version that is registered with another schema is an error: directors with these files
/// would be refused as well.
pub(super) async fn register(
    catalog: &ModelCatalog,
    models: Vec<ModelRegistration>,
) -> anyhow::Result<()> {
    let refused = catalog.register(models).await?;
    match refused.first() {
        None => Ok(()),
        Some(refused) => Err(UsageError::new(format!(
            "the model `{}` (version {}) was refused: {}",
            refused.model, refused.version, refused.reason
        ))
        .into()),
    }
}

async fn read_folder(
    args: &ApiArgs,
    env: &CogEnv,
    dir: &Path,
) -> anyhow::Result<Vec<ModelRegistration>> {
    let factory = ModelFactory::new(&model_args(args), env, model_config(args))?;
    let models = ModelRegistry::new(factory.lookup_service()?);
    let documents = Arc::new(MemoryDocuments::default());
    let loader = ModelLoader {
        target: ServeTarget::of(dir),
        owner: args.owner.clone(),
        // The schema is read from the source at once, and no job ever loads the model.
        load_policy: LoadPolicy::OnDemand {
            idle_timeout: None,
            load_limit: LoadLimit::new(None),
        },
        factory,
        models: models.clone(),
        observer_for: Box::new(|_, _| Arc::new(())),
        weights: Arc::new(TrainedVersions::new(documents, None)),
        trained: None,
    };
    let found = loader.discover()?;
    loader.load_all(found).await?;
    let registered = models.all();
    Ok(registered
        .iter()
        .filter_map(|model| registration(model))
        .collect())
}

fn registration(model: &ServedModel) -> Option<ModelRegistration> {
    let version = model.current();
    if version.is_handler {
        tracing::warn!(
            model = model.name(),
            "not registered: the schema of a handler is known when a director runs its script"
        );
        return None;
    }
    Some(ModelRegistration {
        model: model.name().to_owned(),
        version: version.id().to_owned(),
        schema: version.executor().description()?.as_ref().clone(),
        description: version.description.clone(),
        created_at: version.created_at,
        is_handler: version.is_handler,
        is_procedure: false,
    })
}

fn model_args(args: &ApiArgs) -> ModelArgs {
    ModelArgs {
        python: args.python.clone(),
        predict: None,
        train: None,
        mode: ModeArg::Predict,
        setup_timeout: None,
        rp_debugger: false,
        rp_log_level: None,
        script_args: Vec::new(),
    }
}

/// No model is started, so most of it has no effect.
fn model_config(args: &ApiArgs) -> ModelConfig {
    ModelConfig {
        workers: WorkerCount::fixed(1),
        gpus: None,
        autoscaling: None,
        spare: None,
        slots: None,
        max_slots: None,
        async_handler_slots: None,
        queue_limit: 0,
        queue: Arc::new(MemoryQueue::default()),
        cancel_grace: Duration::ZERO,
        respawn: false,
        keep_for: Duration::ZERO,
        keep_data_for: None,
        job_timeout: None,
        max_output: args.max_output,
        waiting_memory: usize::MAX,
        store: None,
        file_store: None,
        hidden_env: &[],
        on_lost: OnLost::Fail,
        run_as: None,
        limits: ResourceLimits {
            memory: None,
            processes: None,
            output_file: None,
        },
        batch: BatchSettings::default(),
        outbound: OutboundConfig::unrestricted(),
        environments: EnvironmentStore::new(None),
        install: None,
    }
}
