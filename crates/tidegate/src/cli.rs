//! The command line: the commands and the global options.

mod api;
mod batch;
mod dead_letters;
mod director;
mod gpu;
mod inspect;
mod join;
mod migrate;
mod model;
mod platform;
mod predict;
mod queue;
mod router;
mod scaling;
mod serve;
mod shared;
mod token;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Arg, CommandFactory, Parser, Subcommand, ValueEnum};
use tidegate_http::ui::Setting;

pub(crate) use api::ApiArgs;
pub(crate) use dead_letters::{
    ChosenDeadLetters, DeadLettersArgs, DeadLettersCommand, ListDeadLettersArgs,
};
pub(crate) use director::{DirectorArgs, HookArgs, JobKindArg, OnHookFailureArg, OnIsolatedArg};
pub(crate) use gpu::{GpuArgs, GpusPerWorker};
pub(crate) use inspect::{CancelArgs, ConnectArgs, LogsArgs, PsArgs, ReplayArgs, TrustArgs};
pub(crate) use join::JoinArgs;
pub(crate) use migrate::MigrateArgs;
pub(crate) use model::{
    DoctorArgs, EnvironmentArgs, InitArgs, InstallArgs, ModeArg, ModelArgs, SchemaArgs, UploadArgs,
};
pub(crate) use platform::{
    AddEndpointArgs, EndpointArgs, EndpointEnvArgs, EndpointsArgs, EndpointsCommand, EnvFormat,
    ListEndpointsArgs, PlatformArgs, RemoveEndpointArgs,
};
pub(crate) use predict::PredictArgs;
pub(crate) use queue::{RedisArgs, UpkeepArgs};
pub(crate) use router::{RouterArgs, RouterCommand};
pub(crate) use scaling::ScalingArgs;
pub(crate) use serve::{ProgressMode, ServeArgs};
pub(crate) use shared::{FileStoreArgs, ListenArgs, OnLostArg, WebhookArgs};
pub(crate) use token::{NewTokenArgs, TokenArgs, TokenCommand};
pub(crate) use worker::WorkerArgs;

use crate::build_info;

/// The headings of `serve --help` and `platform --help`.
mod heading {
    pub(super) const MODEL: &str = "Model";
    pub(super) const CLUSTER: &str = "Cluster";
    pub(super) const LISTENING: &str = "Listening";
    pub(super) const ACCESS: &str = "Access";
    pub(super) const ENDPOINTS: &str = "Endpoints for Runpod's workers";
    pub(super) const QUEUE: &str = "Queue and limits";
    pub(super) const STORAGE: &str = "Storage";
    pub(super) const REDIS: &str = "Queue in Redis";
    pub(super) const WEBHOOKS: &str = "Webhooks";
    pub(super) const FILES: &str = "Files";
    pub(super) const PROCESS: &str = "Process";
    pub(super) const GPUS: &str = "GPUs";
    pub(super) const HOOKS: &str = "Hooks";
    pub(super) const FLEET: &str = "Fleet";
    pub(super) const JOIN: &str = "Router";
}

/// Where the help of a command refers to for the options that it does not list.
const GLOBAL_OPTIONS: &str =
    "`tidegate --help` lists the global options: --config, --log-level and --log-format.";

/// Serve Python models over the HTTP APIs of Cog, Replicate and Runpod
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = build_info::VERSION, long_version = build_info::LONG, propagate_version = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log format: `console` for people, `json` for machines. Also read from LOG_FORMAT
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_FORMAT",
        value_enum,
        hide_env_values = true
    )]
    pub(crate) log_format: Option<LogFormat>,
    /// Log level: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,model=debug`.
    /// Also read from RUST_LOG and COG_LOG_LEVEL
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_LOG_LEVEL",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub(crate) log_level: Option<String>,
    /// TOML file with settings: `keep_for = "1h"` is `--keep-for 1h`. The command line and the
    /// environment take precedence. For `router` it also describes the fleet
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_CONFIG",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) config: Option<PathBuf>,
    /// The effective settings of the command, for operators.
    #[arg(skip)]
    pub(crate) settings: Arc<[Setting]>,
}

impl Cli {
    /// The parser. Every command accepts the global options, and only the top-level help lists them.
    pub(crate) fn parser() -> clap::Command {
        let command = Self::command();
        let hidden: Vec<Arg> = command
            .get_arguments()
            .filter(|arg| arg.is_global_set())
            .map(|arg| arg.clone().hide(true))
            .collect();
        command.mut_subcommands(|command| with_hidden(command, &hidden))
    }
}

/// Adds hidden arguments to a command and its subcommands. clap copies a global argument only into
/// commands that do not define it themselves.
fn with_hidden(command: clap::Command, hidden: &[Arg]) -> clap::Command {
    let command = match command.get_after_help() {
        Some(text) => {
            let text = format!("{text}\n\n{GLOBAL_OPTIONS}");
            command.after_help(text)
        }
        None => command.after_help(GLOBAL_OPTIONS),
    };
    command
        .args(hidden)
        .mut_subcommands(|command| with_hidden(command, hidden))
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Console,
    /// One JSON object per line.
    Json,
}

/// The commands. Their help texts are the doc comments of the argument structs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArgs>),
    Platform(Box<PlatformArgs>),
    Api(Box<ApiArgs>),
    Router(Box<RouterArgs>),
    Endpoints(EndpointsArgs),
    Predict(Box<PredictArgs>),
    Worker(Box<WorkerArgs>),
    Director(Box<DirectorArgs>),
    Ps(PsArgs),
    Logs(LogsArgs),
    Cancel(CancelArgs),
    Replay(ReplayArgs),
    DeadLetters(DeadLettersArgs),
    Migrate(MigrateArgs),
    Schema(SchemaArgs),
    Init(InitArgs),
    Install(InstallArgs),
    Doctor(DoctorArgs),
    Token(TokenArgs),
    /// Print a completion script for a shell
    Completions {
        /// Shell to complete for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}
