//! Builds what a model runs with: its child processes and its job service.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::JobKind;
use tidegate_core::pool_status::SpareKind;
use tidegate_core::port::Executor;
use tidegate_core::queue::Queue;
use tidegate_core::record::Target;
use tidegate_core::store::Store;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_ipc::{SPILL_ABOVE, control};
use tidegate_net::{AllowedNetworks, Client, Config as NetConfig, Url, parse_url};
use tidegate_runtime::Respawn;
use tidegate_runtime::{
    Autoscaling, BatchSettings, LaunchConfig, Observer, ResourceLimits, RunAs, Runtime, Scratch,
};
use tidegate_service::{
    Config, Deps, FileStore, Files, JobIo, JobService, JobSettings, NoExecutor, OnLost,
    WebhookSecrets, free_space,
};

use crate::cli::{ModeArg, ModelArgs};
use crate::compat::CogEnv;
use crate::environments::{self, EnvironmentStore, InstallProgress};
use crate::gpu_setup::GpuSetup;
use crate::model_source::ModelSource;
use crate::python::Python;
use crate::secrets;
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;

/// Deaths in a row without a finished job after which a model is defunct.
const GIVE_UP_AFTER: u32 = 5;

/// Why a command ends that cannot create its folder for temporary files.
pub(crate) const SCRATCH_FAILED: &str =
    "failed to create a folder for temporary files; check that TMPDIR is writable";

/// The target of a job service that runs no model.
pub(crate) const NO_TARGET: Target = Target {
    model: String::new(),
    version: String::new(),
    deployment: None,
};

/// What differs between the commands that run a model.
pub(crate) struct ModelConfig {
    pub(crate) workers: WorkerCount,
    /// The GPUs for the model. `None`: it sees what the command sees.
    pub(crate) gpus: Option<GpuSetup>,
    pub(crate) autoscaling: Option<Autoscaling>,
    pub(crate) spare: Option<SpareKind>,
    pub(crate) slots: Option<u32>,
    /// The most slots of code that changes its concurrency while it runs.
    pub(crate) max_slots: Option<u32>,
    /// The slots of an async Runpod handler that does not limit its concurrency; 1 by default.
    pub(crate) async_handler_slots: Option<u32>,
    pub(crate) queue_limit: usize,
    pub(crate) cancel_grace: Duration,
    pub(crate) respawn: bool,
    pub(crate) keep_for: Duration,
    pub(crate) keep_data_for: Option<Duration>,
    pub(crate) job_timeout: Option<Duration>,
    pub(crate) max_output: usize,
    pub(crate) waiting_memory: usize,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) file_store: Option<Arc<FileStore>>,
    /// Variables that are hidden from the model, in addition to those that every server hides.
    pub(crate) hidden_env: &'static [&'static str],
    pub(crate) on_lost: OnLost,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) limits: ResourceLimits,
    pub(crate) batch: BatchSettings,
    pub(crate) outbound: OutboundConfig,
    pub(crate) environments: EnvironmentStore,
    /// Whether the packages of a new version are installed, and where that is shown.
    pub(crate) install: Option<InstallProgress>,
}

/// The requests that the server sends: webhooks, downloads and uploads.
pub(crate) struct OutboundConfig {
    pub(crate) networks: AllowedNetworks,
    pub(crate) max_file: u64,
    pub(crate) upload_url: Option<String>,
    pub(crate) webhook_secrets: WebhookSecrets,
    pub(crate) webhook_retry_for: Duration,
    pub(crate) webhook_timeout: Duration,
    /// Renders the webhooks of Replicate's API.
    pub(crate) renderer: PredictionRenderer,
}

impl OutboundConfig {
    /// For commands whose user gives the addresses: all networks are allowed, and there are no
    /// webhooks.
    pub(crate) fn unrestricted() -> Self {
        let NetConfig {
            max_file,
            webhook_timeout,
            ..
        } = NetConfig::default();
        let renderer = PredictionRenderer::new(&[], RenderAborted::AsIs);
        Self {
            networks: AllowedNetworks::all(),
            max_file,
            upload_url: None,
            webhook_secrets: WebhookSecrets::default(),
            webhook_retry_for: Duration::ZERO,
            webhook_timeout,
            renderer,
        }
    }
}

/// Starts models, and creates their job services.
pub(crate) struct ModelFactory {
    args: ModelArgs,
    env: CogEnv,
    config: ModelConfig,
    python: Python,
    scratch: Scratch,
}

/// Starts one model, any number of times.
#[derive(Clone)]
pub(crate) struct ModelStarter {
    launch: LaunchConfig,
    scratch: Scratch,
}

impl ModelStarter {
    /// Starts the model's children.
    pub(crate) fn start(&self, observer: Arc<dyn Observer>) -> Runtime {
        Runtime::start(self.launch.clone(), self.scratch.clone(), observer)
    }

    /// The same with one more environment variable for the children.
    pub(crate) fn with_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.launch.env.push((name.into(), value.into()));
        self
    }

    /// The number of the model's children.
    pub(crate) fn children(&self) -> usize {
        self.launch.children
    }

    /// The folder for temporary files.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl ModelFactory {
    pub(crate) fn new(args: &ModelArgs, env: &CogEnv, config: ModelConfig) -> anyhow::Result<Self> {
        let python = Python::find(args.python.as_deref())?;
        let scratch = Scratch::new(config.run_as.as_ref()).context(SCRATCH_FAILED)?;
        Ok(Self {
            args: args.clone(),
            env: env.clone(),
            config,
            python,
            scratch,
        })
    }

    /// The folder for temporary files, which is deleted when the program ends.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Installs the packages of a model, if the command has the flag.
    pub(crate) async fn install(&self, model: &ModelSource) -> anyhow::Result<()> {
        let Some(progress) = self.config.install.filter(|_| !model.is_script()) else {
            return Ok(());
        };
        let (dir, store) = (model.dir.clone(), self.config.environments.clone());
        let python = self.python.program.clone();
        let install =
            move || environments::install_folder(&dir, &store, &python, progress).map(drop);
        tokio::task::spawn_blocking(install).await?
    }

    /// Reads a model's folder or script.
    pub(crate) fn read(&self, folder: &Path) -> anyhow::Result<ModelSource> {
        ModelSource::read(folder, &self.args, &self.env)
    }

    /// A job service that finds the jobs of all models, and runs none.
    pub(crate) fn lookup_service(&self) -> anyhow::Result<JobService> {
        self.job_service(Arc::new(NoExecutor), NO_TARGET)
    }

    /// The job service of a model.
    pub(crate) fn job_service(
        &self,
        executor: Arc<dyn Executor>,
        target: Target,
    ) -> anyhow::Result<JobService> {
        let Self {
            config, scratch, ..
        } = self;
        let files = self.files()?;
        let (scratch, scratch_root) = (scratch.clone(), scratch.path().to_owned());
        let deps = Deps {
            net: Arc::clone(&files.net),
            files,
            scratch: Arc::new(move || scratch.unique_path()),
            free_space: Arc::new(move || free_space(&scratch_root)),
            spill_above: SPILL_ABOVE,
            queue: Arc::clone(&config.queue),
            store: config.store.clone(),
            cluster: None,
        };
        let config = self.service_config();
        Ok(JobService::new(executor, target, deps, config))
    }

    fn service_config(&self) -> Config {
        let Self {
            args, env, config, ..
        } = self;
        Config {
            webhook_token: env.webhook_token.clone(),
            webhook_secrets: config.outbound.webhook_secrets.clone(),
            webhook_throttle: env.throttle(),
            webhook_retry_for: config.outbound.webhook_retry_for,
            waiting_memory: config.waiting_memory,
            jobs: JobSettings {
                stream_history: env.stream_history(),
                keep_for: config.keep_for,
                keep_data_for: config.keep_data_for,
                predictions_are: match args.mode {
                    ModeArg::Predict => JobKind::Prediction,
                    ModeArg::Train => JobKind::Training,
                },
                job_timeout: config.job_timeout,
                max_output: config.max_output,
                on_lost: config.on_lost,
                renderer: tidegate_http::renderer(config.outbound.renderer.clone()),
            },
        }
    }

    /// The environment variables of Cog for one model: those of the server, else those in the
    /// `environment` of the model's `cog.yaml`.
    fn env_of(&self, model: &ModelSource) -> CogEnv {
        self.env.clone().or(CogEnv::of_model(&model.env))
    }

    /// How many events of a stream of this model are kept for late readers.
    pub(crate) fn stream_history(&self, model: &ModelSource) -> usize {
        self.env_of(model).stream_history()
    }

    /// Prepares inputs and collects outputs for a command that has no job service.
    pub(crate) fn job_io(&self) -> anyhow::Result<JobIo> {
        let scratch = self.scratch.clone();
        Ok(JobIo::new(
            self.files()?,
            Arc::new(move || scratch.unique_path()),
        ))
    }

    /// Where input files come from and output files go.
    fn files(&self) -> anyhow::Result<Files> {
        let Self { env, config, .. } = self;
        let net = Arc::new(Client::new(NetConfig {
            download_user_agent: env.user_agent.clone(),
            networks: config.outbound.networks.clone(),
            max_file: config.outbound.max_file,
            webhook_timeout: config.outbound.webhook_timeout,
            ..NetConfig::default()
        }));
        let upload_url = config
            .outbound
            .upload_url
            .as_deref()
            .map(upload_url)
            .transpose()?;
        Ok(Files {
            net,
            upload_url,
            owner: config.run_as.as_ref().map(|user| user.uid),
            file_store: config.file_store.clone(),
        })
    }

    /// What starts a version of a model now, later, or again.
    pub(crate) fn starter(&self, model: &ModelSource, name: &str, version: &str) -> ModelStarter {
        let mut launch = self.launch(model);
        if let Some(gpus) = &self.config.gpus {
            gpus.warn_about(model);
            launch.gpus = gpus.assigner(model, name, version);
        }
        ModelStarter {
            launch,
            scratch: self.scratch.clone(),
        }
    }

    /// Whether the children of a version probably fit into the free memory of the GPUs.
    pub(crate) fn fits_on_gpus(&self, model: &ModelSource, name: &str, version: &str) -> bool {
        let Some(gpus) = &self.config.gpus else {
            return true;
        };
        let children = self.config.workers.children(gpus.places(model));
        let assigner = gpus.assigner(model, name, version);
        assigner.is_none_or(|assigner| assigner.fits(children))
    }

    /// The environment variables of a model's children.
    fn model_env(&self, model: &ModelSource) -> Vec<(OsString, OsString)> {
        let mut env = model.env.clone();
        if let Some(slots) = self.config.async_handler_slots
            && model.is_script()
        {
            // Read by `tidegate.handler.entry`.
            env.push((
                "TIDEGATE_ASYNC_HANDLER_SLOTS".into(),
                slots.to_string().into(),
            ));
        }
        let hidden = self.config.gpus.as_ref();
        let hidden = hidden.and_then(|gpus| gpus.hiding_variable(model));
        env.extend(hidden.map(|(name, value)| (name.into(), value.into())));
        env
    }

    /// How the children of a model are launched, without GPUs of their own.
    pub(crate) fn launch(&self, model: &ModelSource) -> LaunchConfig {
        let Self {
            args,
            config,
            python,
            scratch,
            ..
        } = self;
        let selected = environments::select(model, &config.environments, python, scratch.path());
        let env = self.env_of(model);
        let places = config.gpus.as_ref().and_then(|gpus| gpus.places(model));
        LaunchConfig {
            python: selected.python.program,
            python_path: selected.python.path,
            requirements: selected.requirements,
            model_dir: model.dir.clone(),
            predictor_ref: model.predictor_ref.clone(),
            train_ref: model.train_ref.clone(),
            mode: match model.mode {
                ModeArg::Predict => control::ModelMode::Predict,
                ModeArg::Train => control::ModelMode::Train,
            },
            slots: config.slots.or(env.max_concurrency).or(model.concurrency),
            max_slots: config.max_slots,
            children: config.workers.children(places),
            autoscaling: config.autoscaling,
            spare: config.spare,
            queue_limit: config.queue_limit,
            setup_timeout: args
                .setup_timeout
                .filter(|limit| !limit.is_zero())
                .or(env.setup_timeout),
            cancel_grace: config.cancel_grace,
            respawn: if config.respawn {
                Respawn::Backoff {
                    give_up_after: GIVE_UP_AFTER,
                }
            } else {
                Respawn::Never
            },
            env: self.model_env(model),
            hidden_env: secrets::NAMES
                .iter()
                .chain([&secrets::SECRETS_FD])
                .chain(config.hidden_env)
                .map(Into::into)
                .collect(),
            gpus: None,
            run_as: config.run_as.clone(),
            limits: config.limits,
            batch: config.batch,
        }
    }
}

fn upload_url(text: &str) -> Result<Url, UsageError> {
    parse_url(text, &AllowedNetworks::all()).map_err(|error| {
        UsageError::new(format!("invalid --upload-url `{text}`: {error}"))
            .hint("give an http:// or https:// URL")
    })
}
