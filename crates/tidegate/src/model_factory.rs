//! Puts the rooms together: model, runtime, desk.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::JobKind;
use tidegate_core::port::Executor;
use tidegate_core::record::Target;
use tidegate_core::store::Store;
use tidegate_http::replicate::{PredictionRenderer, RenderAborted};
use tidegate_ipc::{SPILL_ABOVE, control};
use tidegate_net::{AllowedNetworks, Client, Config as NetConfig, Url, parse_url};
use tidegate_queue::MemoryQueue;
use tidegate_runtime::Respawn;
use tidegate_runtime::{LaunchConfig, Observer, ResourceLimits, RunAs, Runtime, Scratch};
use tidegate_service::{
    Config, Deps, FileStore, Files, JobIo, JobService, OnLost, Secrets, free_space,
};

use crate::cli::{ModeArg, ModelArgs};
use crate::compat::CogEnv;
use crate::model_source::ModelSource;
use crate::python::Python;
use crate::secrets;
use crate::usage_error::UsageError;

/// Deaths in a row without a finished job before a model is given up.
const GIVE_UP_AFTER: u32 = 5;

/// What differs between the commands that run a model.
pub(crate) struct ModelConfig {
    pub(crate) workers: usize,
    pub(crate) slots: Option<u32>,
    /// Slots for code that changes its mind about how many jobs it wants at once.
    pub(crate) room: Option<u32>,
    pub(crate) line_limit: usize,
    pub(crate) cancel_grace: Duration,
    pub(crate) respawn: bool,
    pub(crate) keep_for: Duration,
    pub(crate) keep_data_for: Option<Duration>,
    pub(crate) job_timeout: Option<Duration>,
    pub(crate) max_output: usize,
    pub(crate) waiting_memory: usize,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) file_store: Option<Arc<FileStore>>,
    /// Variables that the model must not have, besides those of every server.
    pub(crate) hidden_env: &'static [&'static str],
    pub(crate) on_lost: OnLost,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) limits: ResourceLimits,
    pub(crate) outward: OutboundConfig,
}

/// Whom the server calls, and how.
pub(crate) struct OutboundConfig {
    pub(crate) networks: AllowedNetworks,
    pub(crate) max_file: u64,
    pub(crate) upload_url: Option<String>,
    pub(crate) webhook_secrets: Secrets,
    pub(crate) webhook_retry_for: Duration,
    /// How webhooks are written in Replicate's words.
    pub(crate) renderer: PredictionRenderer,
}

impl OutboundConfig {
    /// For who types the addresses themselves: no guard, and nobody to be told.
    pub(crate) fn own() -> Self {
        let max_file = NetConfig::default().max_file;
        let renderer = PredictionRenderer::new(&[], RenderAborted::AsIs);
        Self {
            networks: AllowedNetworks::all(),
            max_file,
            upload_url: None,
            webhook_secrets: Secrets::default(),
            webhook_retry_for: Duration::ZERO,
            renderer,
        }
    }
}

/// What all models of a server are run with.
pub(crate) struct ModelFactory {
    args: ModelArgs,
    env: CogEnv,
    setting: ModelConfig,
    python: Python,
    scratch: Scratch,
}

/// Starts one model, as often as it is wanted.
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

    /// The same with one more variable in the environment of the children.
    pub(crate) fn with_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.launch.env.push((name.into(), value.into()));
        self
    }

    /// Where its files can be.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl ModelFactory {
    pub(crate) fn open(
        args: &ModelArgs,
        env: &CogEnv,
        setting: ModelConfig,
    ) -> anyhow::Result<Self> {
        let python = Python::find(args.python.as_deref())?;
        let scratch = Scratch::new(setting.run_as.as_ref())
            .context("could not make a folder for temporary files; is TMPDIR writable?")?;
        Ok(Self {
            args: args.clone(),
            env: env.clone(),
            setting,
            python,
            scratch,
        })
    }

    /// Where files lie that nobody needs when the program has ended.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Reads a model's folder.
    pub(crate) fn read(&self, folder: &Path) -> anyhow::Result<ModelSource> {
        ModelSource::read(folder, &self.args, &self.env)
    }

    /// The desk of a model, with everything that a desk needs.
    pub(crate) fn desk(
        &self,
        executor: Arc<dyn Executor>,
        target: Target,
    ) -> anyhow::Result<JobService> {
        let Self {
            args,
            env,
            setting,
            scratch,
            ..
        } = self;
        let files = self.files()?;
        let (scratch, scratch_root) = (scratch.clone(), scratch.path().to_owned());
        let tools = Deps {
            executor,
            net: Arc::clone(&files.net),
            files,
            scratch: Arc::new(move || scratch.unique_path()),
            room: Arc::new(move || free_space(&scratch_root)),
            spill_above: SPILL_ABOVE,
            queue: Arc::new(MemoryQueue::default()),
            store: setting.store.clone(),
        };
        let config = Config {
            webhook_token: env.webhook_token.clone(),
            webhook_secrets: setting.outward.webhook_secrets.clone(),
            webhook_throttle: env.throttle,
            webhook_retry_for: setting.outward.webhook_retry_for,
            stream_history: env.stream_history,
            keep_for: setting.keep_for,
            keep_data_for: setting.keep_data_for,
            predictions_are: match args.mode {
                ModeArg::Predict => JobKind::Prediction,
                ModeArg::Train => JobKind::Training,
            },
            job_timeout: setting.job_timeout,
            max_output: setting.max_output,
            waiting_memory: setting.waiting_memory,
            target,
            on_lost: setting.on_lost,
            renderer: tidegate_http::renderer(
                setting.outward.renderer.clone(),
                tidegate_http::runpod::local::renderer,
            ),
        };
        Ok(JobService::new(tools, config))
    }

    /// What carries jobs to a model and back without a desk.
    pub(crate) fn carrier(&self) -> anyhow::Result<JobIo> {
        let scratch = self.scratch.clone();
        Ok(JobIo::new(
            self.files()?,
            Arc::new(move || scratch.unique_path()),
        ))
    }

    /// How files get in and out.
    fn files(&self) -> anyhow::Result<Files> {
        let Self { env, setting, .. } = self;
        let net = Arc::new(Client::new(NetConfig {
            download_user_agent: env.user_agent.clone(),
            networks: setting.outward.networks.clone(),
            max_file: setting.outward.max_file,
            ..NetConfig::default()
        }));
        let upload_to = setting
            .outward
            .upload_url
            .as_deref()
            .map(upload_url)
            .transpose()?;
        Ok(Files {
            net,
            upload_to,
            owner: setting.run_as.as_ref().map(|user| user.uid),
            own: setting.file_store.clone(),
        })
    }

    /// Starts a model.
    pub(crate) fn start(&self, model: &ModelSource, observer: Arc<dyn Observer>) -> Runtime {
        self.starter(model).start(observer)
    }

    /// What starts a model later.
    pub(crate) fn starter(&self, model: &ModelSource) -> ModelStarter {
        ModelStarter {
            launch: self.launch(model),
            scratch: self.scratch.clone(),
        }
    }

    /// How a model is run.
    pub(crate) fn launch(&self, model: &ModelSource) -> LaunchConfig {
        let Self {
            args,
            env,
            setting,
            python,
            ..
        } = self;
        LaunchConfig {
            python: python.program.clone(),
            python_path: python.path.clone(),
            model_dir: model.dir.clone(),
            predictor_ref: model.predictor_ref.clone(),
            train_ref: model.train_ref.clone(),
            mode: match args.mode {
                ModeArg::Predict => control::ModelMode::Predict,
                ModeArg::Train => control::ModelMode::Train,
            },
            slots: setting.slots.or(env.max_concurrency).or(model.concurrency),
            max_slots: setting.room,
            children: setting.workers,
            queue_limit: setting.line_limit,
            setup_timeout: args
                .setup_timeout
                .filter(|limit| !limit.is_zero())
                .or(env.setup_timeout),
            cancel_grace: setting.cancel_grace,
            respawn: if setting.respawn {
                Respawn::Backoff {
                    give_up_after: GIVE_UP_AFTER,
                }
            } else {
                Respawn::Never
            },
            env: model.env.clone(),
            hidden_env: secrets::NAMES
                .iter()
                .chain([&secrets::HANDED_OVER])
                .chain(setting.hidden_env)
                .map(Into::into)
                .collect(),
            run_as: setting.run_as.clone(),
            limits: setting.limits,
        }
    }
}

fn upload_url(text: &str) -> Result<Url, UsageError> {
    parse_url(text, &AllowedNetworks::all()).map_err(|error| {
        UsageError::new(format!("--upload-url `{text}` cannot be used: {error}"))
            .hint("give an http or https address")
    })
}
