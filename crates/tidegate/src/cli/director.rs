//! The arguments of `tidegate director`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use tidegate_net::{AllowedNetworks, Url};
use tidegate_queue::redis::RedisUrls;

use super::batch::BatchArgs;
use super::{GpuArgs, ModelArgs, UploadArgs, heading};
use crate::data_dir::DataDir;
use crate::worker_count::WorkerCount;
use crate::{replicate_setup, units};

/// Examples at the end of `director --help`.
const EXAMPLES: &str = "\
Examples:
  # Run the jobs of the model in this folder
  tidegate director --redis redis://10.0.0.5 --api http://10.0.0.6:5000 --token-file directors.token
  # Run the jobs of a model that a Cog container serves
  tidegate director --cog-url http://127.0.0.1:5000 --cog-model ann/hello --redis redis://10.0.0.5 \
    --api http://10.0.0.6:5000
  # Run the jobs of a folder of models on one GPU, one model at a time
  tidegate director models/ --max-loaded 1 --redis redis://10.0.0.5 --api http://10.0.0.6:5000";

/// Run the jobs of a cluster on the models of this machine.
///
/// A director takes jobs from the queue in Redis, leases them from `tidegate api`, runs them, and reports
/// their ends. PATH is a Cog model folder, a script with a Runpod handler, or a folder of models. The
/// director and the API may start in any order. The token that both share is in --token-file or in
/// TIDEGATE_DIRECTOR_TOKEN.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DirectorArgs {
    /// Model folder, folder of models, or script with a Runpod handler
    #[arg(default_value = ".", value_name = "PATH")]
    pub(crate) dir: PathBuf,
    /// Run the jobs on a Cog server at this URL, instead of on the models in PATH
    #[arg(long, env = "TIDEGATE_COG_URL", value_name = "URL", value_parser = replicate_setup::public_url, conflicts_with = "dir", help_heading = heading::CLUSTER)]
    pub(crate) cog_url: Option<Url>,
    /// Name of the model on the Cog server
    #[arg(long, env = "TIDEGATE_COG_MODEL", value_name = "OWNER/NAME", value_parser = model_name, help_heading = heading::CLUSTER)]
    pub(crate) cog_model: Option<String>,

    /// Redis servers that the queue is in: redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS,
    /// unix:///PATH, or redis+sentinel://HOST,HOST/MASTER; all of them are read
    #[arg(long, env = "TIDEGATE_REDIS", value_name = "URL[,URL…]", hide_env_values = true, help_heading = heading::CLUSTER)]
    pub(crate) redis: Option<RedisUrls>,
    /// URLs of `tidegate api`; if one does not reply, the next is tried
    #[arg(long, env = "TIDEGATE_API", value_name = "URL", value_delimiter = ',', value_parser = replicate_setup::public_url, help_heading = heading::CLUSTER)]
    pub(crate) api: Vec<Url>,
    /// File with the token that `tidegate api` accepts from directors. TIDEGATE_DIRECTOR_TOKEN contains
    /// the token itself
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE", help_heading = heading::CLUSTER)]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of this director, different for each; it stays the same when the director starts again
    /// [default: the name of the host]
    #[arg(long, env = "TIDEGATE_NAME", value_name = "NAME", value_parser = director_name, help_heading = heading::CLUSTER)]
    pub(crate) name: Option<String>,
    /// Kind of jobs that the director takes. Also read from DIRECTOR_JOB_KIND [default: prediction]
    #[arg(long, env = "TIDEGATE_JOB_KIND", value_name = "KIND", value_enum, help_heading = heading::CLUSTER)]
    pub(crate) job_kind: Option<JobKindArg>,
    /// How often the director tells Redis that it still has its jobs
    #[arg(long, env = "TIDEGATE_CLAIM_INTERVAL", value_name = "DURATION", default_value = "2s", value_parser = units::positive_duration, help_heading = heading::CLUSTER)]
    pub(crate) claim_interval: Duration,
    /// What happens to predictions when no API process replies for the length of a lease. Trainings
    /// continue
    #[arg(long, env = "TIDEGATE_ON_ISOLATED", value_name = "ACTION", value_enum, default_value = "stop", help_heading = heading::CLUSTER)]
    pub(crate) on_isolated: OnIsolatedArg,
    #[command(flatten)]
    pub(crate) hooks: HookArgs,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Install the Python packages of the models first, as `tidegate install` does
    #[arg(long, env = "TIDEGATE_INSTALL", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::MODEL)]
    pub(crate) install: bool,
    /// Owner of the models, which Replicate's API names OWNER/NAME [default: from `image` in cog.yaml,
    /// the folder that contains the model folder, or `local`]
    #[arg(long, env = "TIDEGATE_OWNER", value_name = "NAME", value_parser = replicate_setup::owner, help_heading = heading::MODEL)]
    pub(crate) owner: Option<String>,
    /// Unload a model after this long without jobs; the next job loads it again. Models are then loaded
    /// when a job needs them
    #[arg(long, env = "TIDEGATE_IDLE_TIMEOUT", value_name = "DURATION", value_parser = units::positive_duration, help_heading = heading::MODEL)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Models that are loaded at the same time; the least recently used one is unloaded for the next.
    /// Models are then loaded when a job needs them [default: all, at the start]
    #[arg(long, env = "TIDEGATE_MAX_LOADED", value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = heading::MODEL)]
    pub(crate) max_loaded: Option<u16>,

    /// Jobs that run at the same time in one process; more than one needs async code. Also read from
    /// DIRECTOR_CONCURRENT_PREDICTIONS and COG_MAX_CONCURRENCY [default: from `cog.yaml` or `@concurrent`,
    /// or 1]
    #[arg(long, env = "TIDEGATE_CONCURRENCY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = heading::QUEUE)]
    pub(crate) concurrency: Option<u32>,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    /// Stop a job after this time and report it as failed [default: no limit]
    #[arg(long, env = "TIDEGATE_JOB_TIMEOUT", value_name = "DURATION", value_parser = units::duration, help_heading = heading::QUEUE)]
    pub(crate) job_timeout: Option<Duration>,
    /// Time that a canceled job has to end before its process is killed and replaced
    #[arg(long, env = "TIDEGATE_CANCEL_GRACE", value_name = "DURATION", default_value = "2s", value_parser = units::duration, help_heading = heading::QUEUE)]
    pub(crate) cancel_grace: Duration,
    /// Largest output of a job, all values together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_output: usize,

    #[command(flatten)]
    pub(crate) upload: UploadArgs,
    /// Largest input file, and largest output file that is uploaded
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size, help_heading = heading::FILES)]
    pub(crate) max_file: usize,
    /// Private networks that downloads of inputs may reach: networks or addresses such as
    /// `10.0.0.0/8,192.168.1.20`, or `all` [default: none, only public addresses]
    #[arg(long, env = "TIDEGATE_ALLOW_PRIVATE_NETWORKS", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = AllowedNetworks::parse, help_heading = heading::FILES)]
    pub(crate) allow_private_networks: AllowedNetworks,
    /// Directory with the environments of models [default: ~/.local/state/tidegate]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", help_heading = heading::FILES)]
    pub(crate) data_dir: Option<DataDir>,

    #[command(flatten)]
    pub(crate) gpu: GpuArgs,

    /// Processes that run the model, each with its own copy of it; `auto` starts one per GPU
    #[arg(long, env = "TIDEGATE_WORKERS", value_name = "N|auto", default_value = "1", value_parser = WorkerCount::parse_fixed, help_heading = heading::PROCESS)]
    pub(crate) workers: WorkerCount,
    /// Run the model as this user and group, by name or number; the director must run as root
    #[arg(long, env = "TIDEGATE_RUN_AS", value_name = "USER[:GROUP]", help_heading = heading::PROCESS)]
    pub(crate) run_as: Option<String>,
    /// Memory limit of each model process; allocations above it raise MemoryError [default: no limit]
    #[arg(long, env = "TIDEGATE_WORKER_MEMORY", value_name = "SIZE", value_parser = units::size, help_heading = heading::PROCESS)]
    pub(crate) worker_memory: Option<usize>,
    /// Limit on the processes and threads of the model's user, which must not be root [default: no
    /// limit]
    #[arg(long, env = "TIDEGATE_WORKER_PROCESSES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::PROCESS)]
    pub(crate) worker_processes: Option<u64>,
    /// Do not replace a model process that died
    #[arg(long, env = "TIDEGATE_NO_RESPAWN", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::PROCESS)]
    pub(crate) no_respawn: bool,
    /// Time that running jobs have to finish after SIGTERM; then other directors run them
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_timeout: Duration,
    /// Address of the health check and the metrics
    #[arg(long, env = "TIDEGATE_HOST", default_value = "127.0.0.1", help_heading = heading::PROCESS)]
    pub(crate) host: String,
    /// Port of the health check and the metrics, GET /health-check and /metrics [default: none]
    #[arg(long, env = "PORT", value_parser = units::port, help_heading = heading::PROCESS)]
    pub(crate) port: Option<u16>,
}

/// The HTTP servers that decide about jobs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::HOOKS)]
pub(crate) struct HookArgs {
    /// Ask this URL before each job whether it may run
    #[arg(long, env = "TIDEGATE_POLICY_URL", value_name = "URL", value_parser = replicate_setup::public_url)]
    pub(crate) policy_url: Option<Url>,
    /// Time that --policy-url has to answer
    #[arg(long, env = "TIDEGATE_POLICY_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = units::positive_duration)]
    pub(crate) policy_timeout: Duration,
    /// What happens to a job if --policy-url does not answer
    #[arg(
        long,
        env = "TIDEGATE_ON_POLICY_FAILURE",
        value_name = "ACTION",
        value_enum,
        default_value = "fail"
    )]
    pub(crate) on_policy_failure: OnHookFailureArg,
    /// Ask this URL about the output of each job that succeeds
    #[arg(long, env = "TIDEGATE_MODERATION_URL", value_name = "URL", value_parser = replicate_setup::public_url)]
    pub(crate) moderation_url: Option<Url>,
    /// Time that --moderation-url has to answer
    #[arg(long, env = "TIDEGATE_MODERATION_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = units::positive_duration)]
    pub(crate) moderation_timeout: Duration,
    /// What happens to a job if --moderation-url does not answer
    #[arg(
        long,
        env = "TIDEGATE_ON_MODERATION_FAILURE",
        value_name = "ACTION",
        value_enum,
        default_value = "fail"
    )]
    pub(crate) on_moderation_failure: OnHookFailureArg,
}

/// What happens to a job if a hook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnHookFailureArg {
    /// The job fails
    Fail,
    /// The job continues as without the hook
    Allow,
}

/// The kind of jobs that a director takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobKindArg {
    /// Predictions
    #[value(alias = "predictions")]
    Prediction,
    /// Trainings
    #[value(alias = "trainings")]
    Training,
    /// Procedures, which the model runs as predictions
    #[value(alias = "procedures")]
    Procedure,
}

/// What happens to the predictions of a director that cannot reach the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnIsolatedArg {
    /// Stop them; another director runs them
    Stop,
    /// Continue; they may run twice
    Continue,
}

/// `owner/name`.
fn model_name(text: &str) -> Result<String, String> {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
    };
    match text.split_once('/') {
        Some((owner, name)) if is_part(owner) && is_part(name) => Ok(text.to_owned()),
        Some(_) | None => {
            Err("write OWNER/NAME, with lowercase letters, digits, `.`, `_` and `-`".to_owned())
        }
    }
}

/// A name without spaces and control characters.
fn director_name(text: &str) -> Result<String, String> {
    let is_valid = |name: &str| {
        !name.is_empty()
            && name.len() <= 128
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if is_valid(text) {
        Ok(text.to_owned())
    } else {
        Err("write 1 to 128 letters, digits, `.`, `_` or `-`".to_owned())
    }
}
