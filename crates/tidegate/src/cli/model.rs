//! The arguments that select a model, and those of the commands that only read one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::heading;
use crate::data_dir::DataDir;
use crate::models::ServeTarget;
use crate::units;
use crate::usage_error::UsageError;

/// Which model runs, and how its code is started.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::MODEL)]
pub(crate) struct ModelArgs {
    /// Python interpreter that runs the model, unless `tidegate install` has made an environment for it
    /// [default: the one next to this program, the one of the active virtual environment, or `python3`]
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Class or function of the model as `file.py:Name`, instead of the one in `cog.yaml`
    #[arg(long, env = "TIDEGATE_PREDICT", value_name = "REF")]
    pub(crate) predict: Option<String>,
    /// Training function as `file.py:Name`, instead of the one in `cog.yaml`
    #[arg(long, env = "TIDEGATE_TRAIN", value_name = "REF")]
    pub(crate) train: Option<String>,
    /// Function that predictions call: `run()`/`predict()`, or the training function
    #[arg(
        long,
        env = "TIDEGATE_MODE",
        value_enum,
        default_value = "predict",
        alias = "x-mode"
    )]
    pub(crate) mode: ModeArg,
    /// Fail the start when loading and `setup()` take longer. Also read from COG_SETUP_TIMEOUT
    /// [default: no limit]
    #[arg(long, env = "TIDEGATE_SETUP_TIMEOUT", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) setup_timeout: Option<Duration>,
    /// Runpod handler script: add rp_debugger timings to object outputs
    #[arg(long, alias = "rp_debugger", action = ArgAction::SetTrue)]
    pub(crate) rp_debugger: bool,
    /// Runpod handler script: level of its `RunPodLogger`
    #[arg(long, alias = "rp_log_level", value_name = "LEVEL")]
    pub(crate) rp_log_level: Option<String>,
    /// Runpod handler script: arguments for its `sys.argv`
    #[arg(last = true, value_name = "ARGS", help_heading = None)]
    pub(crate) script_args: Vec<String>,
}

impl ModelArgs {
    /// Refuses flags that describe one model if there are several.
    pub(crate) fn check_for(&self, target: &ServeTarget) -> Result<(), UsageError> {
        let Some(root) = target.root() else {
            return Ok(());
        };
        let flag = match self {
            Self {
                predict: Some(_), ..
            } => "--predict",
            Self { train: Some(_), .. } => "--train",
            _ => return Ok(()),
        };
        let message = format!(
            "{flag} is for one model, and `{}` is a folder of models",
            root.display()
        );
        Err(UsageError::new(message).hint("set `predict` or `train` in the cog.yaml of each model"))
    }
}

/// Where output files go.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct UploadArgs {
    /// Upload output files to this URL with `PUT` instead of returning them as data URIs
    #[arg(long, env = "TIDEGATE_UPLOAD_URL", value_name = "URL", help_heading = heading::FILES)]
    pub(crate) upload_url: Option<String>,
}

/// The function that predictions call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// `run()` or `predict()`
    Predict,
    /// The training function
    Train,
}

/// Print the OpenAPI schema of a model.
///
/// The command analyzes the model's code and does not run it.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Model folder, or folder of models: then the output is an object with one schema per model
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Name of the model, `OWNER/NAME` or `NAME`, if the folder has several
    #[arg(long = "model", value_name = "NAME")]
    pub(crate) model_name: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) environments: EnvironmentArgs,
    #[command(flatten)]
    pub(crate) upload: UploadArgs,
}

/// Create a model folder with an example, or the cog.yaml for an existing predict.py
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Folder; it is created if it does not exist
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Install the Python packages of a model.
///
/// Creates an environment with the packages that `build` in `cog.yaml` lists, with `uv` if the machine has
/// it, else with pip. `serve`, `predict`, `worker`, `schema` and `doctor` use the environment. Prints its
/// path.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Model folder, or folder of models, each of which gets its own environment
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Python interpreter for models without `python_version` [default: the one next to this program,
    /// the one of the active virtual environment, or `python3`]
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) environments: EnvironmentArgs,
    /// Create the environment again, for example to get newer versions of packages without a pinned
    /// version
    #[arg(long)]
    pub(crate) reinstall: bool,
}

/// Where environments are.
#[derive(Debug, Clone, Args)]
pub(crate) struct EnvironmentArgs {
    /// Data directory with the environments of models [default: ~/.local/state/tidegate]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<DataDir>,
}

/// Check that this machine can run models, and suggest fixes
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Model folder, or folder of models, to check as well
    pub(crate) dir: Option<PathBuf>,
    /// Python interpreter that runs the models
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) environments: EnvironmentArgs,
}
