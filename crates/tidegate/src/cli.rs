//! The command line.

mod inspect;
mod platform;
mod shared;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use tidegate_core::Account;

use tidegate_http::replicate::Rate;
use tidegate_net::Url;

pub(crate) use inspect::{CancelArgs, ConnectArgs, LogsArgs, PsArgs, ReplayArgs};
pub(crate) use platform::{
    AddEndpointArgs, EndpointEnvArgs, EndpointsArgs, EndpointsCommand, EnvFormat,
    ListEndpointsArgs, PlatformArgs, RemoveEndpointArgs,
};
pub(crate) use shared::{ListenArgs, WebhookArgs};
pub(crate) use worker::WorkerArgs;

use crate::data_dir::DataDir;
use crate::files_store::FilesStoreUrl;
use crate::{build_info, replicate_setup, units};

/// Serve any Python model behind every API its callers already speak.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = build_info::VERSION, long_version = build_info::LONG, propagate_version = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How log lines look: `console` for people, `json` for machines [env: LOG_FORMAT is read too]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_FORMAT",
        value_enum,
        hide_env_values = true
    )]
    pub(crate) log_format: Option<LogFormat>,
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,model=debug`
    /// [env: RUST_LOG and COG_LOG_LEVEL are read too]
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_LEVEL",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub(crate) log_level: Option<String>,
    /// Read flags from this TOML file: `keep_for = "1h"` for `--keep-for 1h`. The command line and the
    /// environment count more
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CONFIG",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Console,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a model over HTTP
    Serve(Box<ServeArgs>),
    /// Serve endpoints to Runpod's clients and workers
    Platform(Box<PlatformArgs>),
    /// Look after the endpoints of a running platform
    Endpoints(EndpointsArgs),
    /// Run one prediction, with a model folder or against a running server
    Predict(Box<PredictArgs>),
    /// Fetch jobs from a Runpod platform and run them
    Worker(Box<WorkerArgs>),
    /// List the jobs of a running server
    Ps(PsArgs),
    /// Print what a job of a running server has printed
    Logs(LogsArgs),
    /// Stop jobs of a running server
    Cancel(CancelArgs),
    /// Have a running server send a webhook again
    Replay(ReplayArgs),
    /// Print the OpenAPI schema of a model
    Schema(SchemaArgs),
    /// Write a new model folder to start from
    Init(InitArgs),
    /// Check that this machine can run models, and say what to do if not
    Doctor(DoctorArgs),
    /// Make tokens for those who may call a server
    Token(TokenArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

/// Which model, and how its code is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// The Python that runs the model [default: the one beside this program, the active virtual
    /// environment's, or `python3`]
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// The model's class or function as `file.py:Name`, instead of what `cog.yaml` says
    #[arg(long, env = "TIDEGATE_PREDICT", value_name = "REF")]
    pub(crate) predict: Option<String>,
    /// The training function as `file.py:Name`, instead of what `cog.yaml` says
    #[arg(long, env = "TIDEGATE_TRAIN", value_name = "REF")]
    pub(crate) train: Option<String>,
    /// How long `setup()` may take [default: for ever] [env: COG_SETUP_TIMEOUT is read too]
    #[arg(long, env = "TIDEGATE_SETUP_TIMEOUT", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) setup_timeout: Option<Duration>,
    /// Put output files there with `PUT` instead of returning them as data URIs
    #[arg(long, env = "TIDEGATE_UPLOAD_URL", value_name = "URL")]
    pub(crate) upload_url: Option<String>,
    /// For a script with a Runpod handler: what `rp_debugger` measured is in each output that is an object
    #[arg(long, alias = "rp_debugger", action = ArgAction::SetTrue)]
    pub(crate) rp_debugger: bool,
    /// For a script with a Runpod handler: what its `RunPodLogger` writes
    #[arg(long, alias = "rp_log_level", value_name = "LEVEL")]
    pub(crate) rp_log_level: Option<String>,
    /// For a script: what it finds in `sys.argv`
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) script_args: Vec<String>,
    /// Whether predictions call `run()`/`predict()` or the training function
    #[arg(
        long,
        env = "TIDEGATE_MODE",
        value_enum,
        default_value = "predict",
        alias = "x-mode"
    )]
    pub(crate) mode: ModeArg,
}

/// Which function answers predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// `run()` or `predict()`
    Predict,
    /// The training function
    Train,
}

/// Serve a model over HTTP, or a folder of models.
///
/// DIR is a Cog model folder: it has a `cog.yaml` that names the predictor. Or it is a folder of such
/// folders, `DIR/NAME` or `DIR/OWNER/NAME`. The server answers as soon as it is started; GET
/// /health-check says when the model is ready.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The model's folder, a folder of models, or a script with a Runpod handler
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// What `tidegate serve` does anyway; for command lines that were written for `python handler.py`
    #[arg(long = "rp_serve_api", hide = true)]
    pub(crate) rp_serve_api: bool,
    /// How many processes run the model, each with its own copy of it
    #[arg(long, alias = "rp_api_concurrency", env = "TIDEGATE_WORKERS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// How many predictions run at once in one process; more than one needs async code [default: what
    /// `cog.yaml` or `@concurrent` says, or 1] [env: COG_MAX_CONCURRENCY is read too]
    #[arg(long, env = "TIDEGATE_CONCURRENCY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: Option<u32>,
    /// How many requests of each account may wait for a free slot instead of being refused with 409;
    /// accounts take turns
    #[arg(long, env = "TIDEGATE_QUEUE", value_name = "N", default_value_t = 0)]
    pub(crate) queue: usize,
    /// How long a canceled prediction may go on before its process is killed and replaced
    #[arg(long, env = "TIDEGATE_CANCEL_GRACE", value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    pub(crate) cancel_grace: Duration,
    /// How long the model may work on one prediction; then it is stopped and has failed [default: for
    /// ever; a request can ask for less with the header `Cancel-After`]
    #[arg(long, env = "TIDEGATE_JOB_TIMEOUT", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) job_timeout: Option<Duration>,
    /// The most that one prediction may give, all its values together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size)]
    pub(crate) max_output: usize,
    /// The memory for the inputs of predictions that wait in a line. Above it they wait in the data folder; without
    /// one, new ones are refused
    #[arg(long, env = "TIDEGATE_WAITING_MEMORY", value_name = "SIZE", default_value = "64MiB", value_parser = units::size)]
    pub(crate) waiting_memory: usize,
    /// How long accepted predictions and their webhooks may go on after SIGTERM before they are given up
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
    /// Where predictions are written down that somebody may come back for, so that they survive a
    /// restart; `none` keeps them in memory only [default: a folder for this model and port under
    /// ~/.local/state/tidegate; none with --port 0]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<DataDir>,
    /// Whose the models are: they are called OWNER/NAME in Replicate's API [default: as `image` in
    /// cog.yaml or the folder around a model's says, or `local`]
    #[arg(long, env = "TIDEGATE_OWNER", value_name = "NAME", value_parser = replicate_setup::owner)]
    pub(crate) owner: Option<String>,
    /// Load a model again when its files change: the new version takes over when it is ready, and the old
    /// one ends what it has begun. SIGHUP does it once
    #[arg(long, env = "TIDEGATE_WATCH", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) watch: bool,
    /// Load each model when it is first wanted, not at the start
    #[arg(long, env = "TIDEGATE_LAZY", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) lazy: bool,
    /// Let a model leave the memory when nobody has wanted it for so long; it comes back when somebody
    /// does. Implies --lazy
    #[arg(long, env = "TIDEGATE_IDLE_TIMEOUT", value_name = "DURATION", value_parser = units::some_duration)]
    pub(crate) idle_timeout: Option<Duration>,
    /// How many models are loaded at once; the one that was not used for the longest time makes room for
    /// the next. Implies --lazy [default: all]
    #[arg(long, env = "TIDEGATE_MAX_LOADED", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_loaded: Option<u16>,
    /// The address by which callers reach the server, for links in answers of Replicate's API and in its
    /// webhooks [default: the `Host` of each request]
    #[arg(long, env = "TIDEGATE_PUBLIC_URL", value_name = "URL", value_parser = replicate_setup::public_url)]
    pub(crate) public_url: Option<Url>,
    /// Show predictions as `canceled` in Replicate's API that have missed their deadline before they began;
    /// its older clients do not know `aborted`
    #[arg(long, env = "TIDEGATE_REPLICATE_LEGACY_STATUS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) replicate_legacy_status: bool,
    /// How often each account may create a prediction in Replicate's API, such as `600/min`; more is
    /// answered with 429 [default: no limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT_CREATE", value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate_limit_create: Option<Rate>,
    /// How often each account may ask anything else in Replicate's API, such as `3000/min` [default: no
    /// limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT", value_name = "RATE", value_parser = units::rate)]
    pub(crate) rate_limit: Option<Rate>,
    /// What becomes of a prediction that the model worked on when the server died
    #[arg(long, env = "TIDEGATE_ON_LOST", value_enum, default_value = "retry")]
    pub(crate) on_lost: OnLostArg,
    /// How long a finished prediction can be looked up, and its output files be had
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "10m", value_parser = units::duration)]
    pub(crate) keep_for: Duration,
    /// How long input, output and logs of a finished prediction are kept, when that is less than
    /// --keep-for: then it is still listed, without them [default: as long as the prediction]
    #[arg(long, env = "TIDEGATE_KEEP_DATA_FOR", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) keep_data_for: Option<Duration>,
    /// How long files are kept that callers upload by Replicate's API
    #[arg(long, env = "TIDEGATE_KEEP_FILES_FOR", value_name = "DURATION", default_value = "24h", value_parser = units::some_duration)]
    pub(crate) keep_files_for: Duration,
    /// Where uploaded files and output files of Replicate's API are kept: `s3://BUCKET[/PREFIX]`, with the
    /// credentials of the usual variables AWS_…, or `file:///FOLDER` [default: in the data folder]
    #[arg(long, env = "TIDEGATE_FILES_STORE", value_name = "URL")]
    pub(crate) files_store: Option<FilesStoreUrl>,
    /// What the uploaded files and trained weights of one account may have together [default: no limit but the disk]
    #[arg(long, env = "TIDEGATE_MAX_STORED_FILES", value_name = "SIZE", value_parser = units::size)]
    pub(crate) max_stored_files: Option<usize>,
    /// The largest request body
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "SIZE", default_value = "100MiB", value_parser = units::size)]
    pub(crate) max_body: usize,
    /// The largest file that an input names or brings along, and the largest output file that is uploaded or
    /// kept
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size)]
    pub(crate) max_file: usize,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    /// How many connections may be open at once; others wait to be accepted [default: what the limit of
    /// open files allows]
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", value_name = "N", value_parser = units::count)]
    pub(crate) max_connections: Option<usize>,
    /// How long the headers of a request may take to come, and how long an idle connection is kept
    #[arg(long, env = "TIDEGATE_HEADER_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::some_duration)]
    pub(crate) header_timeout: Duration,
    /// How long the body of a request may make no progress
    #[arg(long, env = "TIDEGATE_BODY_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = units::some_duration)]
    pub(crate) body_timeout: Duration,
    /// Run the model's code as this user and group, by name or number; the server must be root
    #[arg(long, env = "TIDEGATE_RUN_AS", value_name = "USER[:GROUP]")]
    pub(crate) run_as: Option<String>,
    /// Memory that each process of the model may have for itself; more raises MemoryError there
    /// [default: no limit]
    #[arg(long, env = "TIDEGATE_WORKER_MEMORY", value_name = "SIZE", value_parser = units::size)]
    pub(crate) worker_memory: Option<usize>,
    /// Processes and threads that the model's user may have; needs a user other than root
    /// [default: no limit]
    #[arg(long, env = "TIDEGATE_WORKER_PROCESSES", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) worker_processes: Option<u64>,
    /// Do not replace a model process that died: health becomes DEFUNCT
    #[arg(long, env = "TIDEGATE_NO_RESPAWN", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) no_respawn: bool,
    /// Ignore SIGTERM and end only on POST /shutdown or SIGINT
    #[arg(long, env = "TIDEGATE_AWAIT_EXPLICIT_SHUTDOWN", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = ArgAction::Set, value_parser = FalseyValueParser::new())]
    pub(crate) await_explicit_shutdown: bool,
    /// Accepted and ignored, as in Cog
    #[arg(long, hide = true)]
    pub(crate) threads: Option<u32>,
    /// How the start is shown: `auto` moves on a terminal, `plain` writes a line per phase, `none`
    /// only logs
    #[arg(long, env = "TIDEGATE_PROGRESS", value_enum, default_value = "auto")]
    pub(crate) progress: ProgressMode,
}

/// What becomes of a prediction that the model worked on when the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLostArg {
    /// It is run again, up to three times in all.
    Retry,
    /// It has failed.
    Fail,
}

/// Whether progress moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// On a terminal.
    Auto,
    /// One line per phase.
    Plain,
    /// Nothing but log lines.
    None,
}

/// Run one prediction.
///
/// With a model folder the model is loaded, runs once, and is gone. With the URL of a running server
/// the prediction is sent there.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// A model's folder, a script with a Runpod handler, or the URL of a server
    pub(crate) target: String,
    /// An input as `name=value`, or `name=@file` to send a file. Numbers, lists and objects are
    /// written as JSON
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(crate) inputs: Vec<String>,
    /// All inputs as one JSON object, `@file` or `@-` for standard input
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) json: Option<String>,
    /// For a script with a Runpod handler: the job as `{"input": {…}}` [default: test_input.json beside
    /// the script, if nothing else is given]
    #[arg(long, alias = "test_input", value_name = "JSON", conflicts_with_all = ["inputs", "json"])]
    pub(crate) test_input: Option<String>,
    /// Write the output there; several files become a folder
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// The token to send to a server, alone in a file [env: TIDEGATE_API_TOKEN has the token]
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Run the training function instead
    #[arg(long = "training", action = ArgAction::SetTrue)]
    pub(crate) training: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Print the OpenAPI schema of a model. The model's code is read, not run.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// The model's folder
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Write a new model folder to start from.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder; it is made if it does not exist
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}

/// Make tokens for those who may call a server.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, this once
    New(NewTokenArgs),
}

/// Make a token and print it, this once. A server needs only its hash: a line for `--tokens-file`.
#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// Whose it is: 1 to 64 letters, digits, `_`, `.` and `-`. Jobs belong to the account, not to
    /// the token
    #[arg(long, value_name = "NAME", value_parser = Account::parse)]
    pub(crate) account: Account,
    /// Let it end the server and see what the server does for all accounts
    #[arg(long)]
    pub(crate) admin: bool,
    /// Add the hash to this file, which is made if it does not exist, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Check that this machine can run models.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A model's folder to check too
    pub(crate) dir: Option<PathBuf>,
    /// The Python that runs models
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
}
