//! The arguments of `tidegate serve`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use clap::{ArgAction, Args, ValueEnum};
use tidegate_core::rate_counter::Rate;
use tidegate_net::Url;

use super::batch::BatchArgs;
use super::{
    EndpointArgs, FileStoreArgs, GpuArgs, JoinArgs, ListenArgs, ModelArgs, OnLostArg, RedisArgs,
    ScalingArgs, UpkeepArgs, UploadArgs, WebhookArgs, heading,
};
use crate::data_dir::DataDir;
use crate::worker_count::WorkerCount;
use crate::{replicate_setup, units};

/// Examples at the end of `serve --help`.
const EXAMPLES: &str = "\
Examples:
  # Serve the model in this folder on http://127.0.0.1:5000
  tidegate serve
  # Serve it to other machines, with tokens and a queue
  tidegate token new --account ann --file tokens
  tidegate serve hello --host 0.0.0.0 --tokens-file tokens --queue 100
  # Serve a folder of models, load each on demand, and unload it after 10 minutes without requests
  tidegate serve models/ --idle-timeout 10m
  # Serve a model, and an endpoint whose jobs run on Runpod workers
  tidegate serve hello --endpoint echo";

/// Serve a model, or a folder of models, over HTTP.
///
/// DIR is a Cog model folder, whose `cog.yaml` names the predictor; a script with a Runpod handler, or
/// a folder with such a script, `handler.py`; or a folder of model folders, `DIR/NAME` or
/// `DIR/OWNER/NAME`. The server accepts requests at once; GET /health-check reports when the model is
/// ready.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Model folder, folder of models, or script with a Runpod handler
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Install the Python packages of the models first, as `tidegate install` does
    #[arg(long, env = "TIDEGATE_INSTALL", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::MODEL)]
    pub(crate) install: bool,
    /// Owner of the models, which Replicate's API names OWNER/NAME [default: from `image` in cog.yaml,
    /// the folder that contains the model folder, or `local`]
    #[arg(long, env = "TIDEGATE_OWNER", value_name = "NAME", value_parser = replicate_setup::owner, help_heading = heading::MODEL)]
    pub(crate) owner: Option<String>,
    /// Reload a model when its files change. The new version takes over when it is ready; the old
    /// version finishes its jobs. SIGHUP reloads once
    #[arg(long, env = "TIDEGATE_WATCH", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::MODEL)]
    pub(crate) watch: bool,
    /// Load each model at its first request instead of at startup
    #[arg(long, env = "TIDEGATE_LAZY", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::MODEL)]
    pub(crate) lazy: bool,
    /// Unload a model after this long without requests; the next request loads it again. Implies --lazy
    #[arg(long, env = "TIDEGATE_IDLE_TIMEOUT", value_name = "DURATION", value_parser = units::positive_duration, help_heading = heading::MODEL)]
    pub(crate) idle_timeout: Option<Duration>,
    /// Models that are loaded at the same time; the least recently used one is unloaded for the next.
    /// Implies --lazy [default: all]
    #[arg(long, env = "TIDEGATE_MAX_LOADED", value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = heading::MODEL)]
    pub(crate) max_loaded: Option<u16>,

    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// URL at which clients and workers reach the server, for links in Replicate's API and its webhooks
    /// [default: the `Host` of each request; for workers, the address it listens on]
    #[arg(long, env = "TIDEGATE_PUBLIC_URL", value_name = "URL", value_parser = replicate_setup::public_url, help_heading = heading::LISTENING)]
    pub(crate) public_url: Option<Url>,
    /// Open connections; further clients wait to be accepted [default: from the limit on open files]
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", value_name = "N", value_parser = units::count, help_heading = heading::LISTENING)]
    pub(crate) max_connections: Option<usize>,
    /// Time for the headers of a request, and for which an idle connection stays open
    #[arg(long, env = "TIDEGATE_HEADER_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration, help_heading = heading::LISTENING)]
    pub(crate) header_timeout: Duration,
    /// Time that the body of a request may make no progress
    #[arg(long, env = "TIDEGATE_BODY_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = units::positive_duration, help_heading = heading::LISTENING)]
    pub(crate) body_timeout: Duration,
    /// Report predictions that missed their deadline before they started as `canceled` in Replicate's
    /// API; its older clients do not know `aborted`
    #[arg(long, env = "TIDEGATE_REPLICATE_LEGACY_STATUS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::LISTENING)]
    pub(crate) replicate_legacy_status: bool,

    /// Predictions that run at the same time in one process; more than one needs async code. Also
    /// read from COG_MAX_CONCURRENCY [default: from `cog.yaml` or `@concurrent`, or 1; 128 for an async
    /// Runpod handler without a `concurrency_modifier`]
    #[arg(long, env = "TIDEGATE_CONCURRENCY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = heading::QUEUE)]
    pub(crate) concurrency: Option<u32>,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    /// Requests of each account that may wait for a free slot instead of being refused with 409;
    /// accounts are served in turn
    #[arg(long, env = "TIDEGATE_QUEUE", value_name = "N", default_value_t = 0, help_heading = heading::QUEUE)]
    pub(crate) queue: usize,
    /// Stop a prediction after this time and report it as failed [default: no limit; the header
    /// `Cancel-After` of a request can set a shorter time]
    #[arg(long, env = "TIDEGATE_JOB_TIMEOUT", value_name = "DURATION", value_parser = units::duration, help_heading = heading::QUEUE)]
    pub(crate) job_timeout: Option<Duration>,
    /// Time that a canceled prediction has to end before its process is killed and replaced
    #[arg(long, env = "TIDEGATE_CANCEL_GRACE", value_name = "DURATION", default_value = "2s", value_parser = units::duration, help_heading = heading::QUEUE)]
    pub(crate) cancel_grace: Duration,
    /// Largest output of a prediction, all values together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_output: usize,
    /// Largest request body
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "SIZE", default_value = "100MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_body: usize,
    /// Memory for the inputs of waiting predictions. Above it, inputs wait in the data directory;
    /// without one, new predictions are refused
    #[arg(long, env = "TIDEGATE_WAITING_MEMORY", value_name = "SIZE", default_value = "64MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) waiting_memory: usize,
    /// Predictions that each account may create with the APIs of Replicate, OpenAI and Workers AI, such as
    /// `600/min`; requests above the rate get 429 [default: no limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT_CREATE", value_name = "RATE", value_parser = units::rate, help_heading = heading::QUEUE)]
    pub(crate) rate_limit_create: Option<Rate>,
    /// Other requests that each account may send to these APIs, such as `3000/min`; without
    /// --rate-limit-create also those that run a model with OpenAI's or the Workers AI API [default: no
    /// limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT", value_name = "RATE", value_parser = units::rate, help_heading = heading::QUEUE)]
    pub(crate) rate_limit: Option<Rate>,

    /// Directory for durable jobs, which survive a restart; `none` keeps jobs in memory [default: a
    /// folder for this model and port under ~/.local/state/tidegate; none with --port 0]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", help_heading = heading::STORAGE)]
    pub(crate) data_dir: Option<DataDir>,
    /// PostgreSQL database for durable jobs, instead of the data directory, which then has only files:
    /// `postgresql://USER:PASSWORD@HOST/DATABASE`. One server at a time can use it
    #[arg(long, env = "TIDEGATE_POSTGRES", value_name = "URL", hide_env_values = true, help_heading = heading::STORAGE)]
    pub(crate) postgres: Option<String>,
    /// What happens to a prediction that was running when the server died; `retry` runs it at most
    /// three times in total
    #[arg(long, env = "TIDEGATE_ON_LOST", value_name = "ACTION", value_enum, default_value = "retry", help_heading = heading::STORAGE)]
    pub(crate) on_lost: OnLostArg,
    /// Keep finished predictions and their output files for this long
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "10m", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_for: Duration,
    /// Keep input, output and logs of finished predictions for this long, if it is shorter than
    /// --keep-for; the prediction stays listed without them [default: as long as the prediction]
    #[arg(long, env = "TIDEGATE_KEEP_DATA_FOR", value_name = "DURATION", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_data_for: Option<Duration>,

    #[command(flatten)]
    pub(crate) redis: RedisArgs,
    #[command(flatten)]
    pub(crate) upkeep: UpkeepArgs,

    #[command(flatten)]
    pub(crate) join: JoinArgs,

    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,

    #[command(flatten)]
    pub(crate) upload: UploadArgs,
    #[command(flatten)]
    pub(crate) files: FileStoreArgs,
    /// Largest input file, largest file that a client may upload, and largest output file that is
    /// uploaded or stored
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size, help_heading = heading::FILES)]
    pub(crate) max_file: usize,

    #[command(flatten)]
    pub(crate) gpu: GpuArgs,

    /// Processes that run the model, each with its own copy of it; `auto` starts one per GPU, `1..4`
    /// starts more while requests wait and stops them again
    #[arg(long, alias = "rp_api_concurrency", env = "TIDEGATE_WORKERS", value_name = "N|MIN..MAX|auto", default_value = "1", value_parser = WorkerCount::from_str, help_heading = heading::PROCESS)]
    pub(crate) workers: WorkerCount,
    #[command(flatten)]
    pub(crate) scaling: ScalingArgs,
    /// Run the model as this user and group, by name or number; the server must run as root
    #[arg(long, env = "TIDEGATE_RUN_AS", value_name = "USER[:GROUP]", help_heading = heading::PROCESS)]
    pub(crate) run_as: Option<String>,
    /// Memory limit of each model process; allocations above it raise MemoryError [default: no limit]
    #[arg(long, env = "TIDEGATE_WORKER_MEMORY", value_name = "SIZE", value_parser = units::size, help_heading = heading::PROCESS)]
    pub(crate) worker_memory: Option<usize>,
    /// Limit on the processes and threads of the model's user, which must not be root [default: no
    /// limit]
    #[arg(long, env = "TIDEGATE_WORKER_PROCESSES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = heading::PROCESS)]
    pub(crate) worker_processes: Option<u64>,
    /// Do not replace a model process that died: health becomes DEFUNCT
    #[arg(long, env = "TIDEGATE_NO_RESPAWN", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::PROCESS)]
    pub(crate) no_respawn: bool,
    /// Time that accepted predictions and their webhooks have to finish after SIGTERM
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_timeout: Duration,
    /// Ignore SIGTERM; only POST /shutdown and SIGINT stop the server
    #[arg(long, env = "TIDEGATE_AWAIT_EXPLICIT_SHUTDOWN", value_name = "BOOL", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set, value_parser = FalseyValueParser::new(), help_heading = heading::PROCESS)]
    pub(crate) await_explicit_shutdown: bool,
    /// Startup output: `auto` shows a spinner on a terminal, `plain` one line per phase, `none` only
    /// log lines
    #[arg(long, env = "TIDEGATE_PROGRESS", value_name = "MODE", value_enum, default_value = "auto", help_heading = heading::PROCESS)]
    pub(crate) progress: ProgressMode,

    /// Accepted for compatibility with `python handler.py --rp_serve_api`; `serve` always does this
    #[arg(long = "rp_serve_api", hide = true)]
    pub(crate) rp_serve_api: bool,
    /// Accepted and ignored, as in Cog
    #[arg(long, hide = true)]
    pub(crate) threads: Option<u32>,
}

/// How the startup is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A spinner on a terminal, otherwise one line per phase
    Auto,
    /// One line per phase
    Plain,
    /// Only log lines
    None,
}
