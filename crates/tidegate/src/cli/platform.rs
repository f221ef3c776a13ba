//! The part of the command line that is about endpoints for Runpod's clients and workers.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use tidegate_net::Url;

use super::{ConnectArgs, ListenArgs, WebhookArgs};
use crate::data_dir::DataDir;
use crate::{replicate_setup, units};

/// Serve endpoints to Runpod's clients and workers.
///
/// Clients bring jobs to an endpoint with Runpod's API; workers that use Runpod's SDK come for them. The
/// server runs no model itself. `tidegate endpoints env NAME` prints what a worker is started with.
#[derive(Debug, Args)]
pub(crate) struct PlatformArgs {
    /// An endpoint to open; may be given several times. Those of an earlier start are there again
    #[arg(
        long = "endpoint",
        env = "TIDEGATE_ENDPOINTS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) endpoints: Vec<String>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// Where jobs and endpoints are written down, so that they survive a restart; `none` keeps them in
    /// memory only [default: a folder for this port under ~/.local/state/tidegate; none with --port 0]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<DataDir>,
    /// The address by which workers reach the server [default: the one that is listened on]
    #[arg(long, env = "TIDEGATE_PUBLIC_URL", value_name = "URL", value_parser = replicate_setup::public_url)]
    pub(crate) public_url: Option<Url>,
    /// A worker that has pinged and then says nothing for so long is lost, and its jobs go to others
    #[arg(long, env = "TIDEGATE_WORKER_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::some_duration)]
    pub(crate) worker_timeout: Duration,
    /// Keep the rate limits of Runpod's cloud; more is answered with 429
    #[arg(long, env = "TIDEGATE_CLOUD_LIMITS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) cloud_limits: bool,
    /// How long a finished job can be looked up at most; Runpod's own times (30 minutes, one for
    /// `runsync`) hold as well
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "30m", value_parser = units::duration)]
    pub(crate) keep_for: Duration,
    /// The most that one job may give, all its parts together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size)]
    pub(crate) max_output: usize,
    /// The memory for the inputs of jobs that wait in a line. Above it they wait in the data folder; without
    /// one, new ones are refused
    #[arg(long, env = "TIDEGATE_WAITING_MEMORY", value_name = "SIZE", default_value = "64MiB", value_parser = units::size)]
    pub(crate) waiting_memory: usize,
    /// The largest result or part that a worker may send at once; with a larger one the job fails
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "SIZE", default_value = "100MiB", value_parser = units::size)]
    pub(crate) max_body: usize,
    /// How long is waited after SIGTERM for jobs that workers have; what is not over then is left to the
    /// next start
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
}

/// Look after the endpoints of a running platform. With tokens, an administrator's is needed.
#[derive(Debug, Args)]
pub(crate) struct EndpointsArgs {
    #[command(subcommand)]
    pub(crate) command: EndpointsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointsCommand {
    /// List the endpoints
    List(ListEndpointsArgs),
    /// Open an endpoint; it is there after a restart too
    Add(AddEndpointArgs),
    /// Remove an endpoint; it stays away after a restart too
    Remove(RemoveEndpointArgs),
    /// Print the environment that a worker of an endpoint is started with
    Env(EndpointEnvArgs),
}

/// List the endpoints.
#[derive(Debug, Args)]
pub(crate) struct ListEndpointsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Open an endpoint; it is there after a restart too.
#[derive(Debug, Args)]
pub(crate) struct AddEndpointArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Its name: small letters, digits, `-` and `_`
    pub(crate) name: String,
}

/// Remove an endpoint; it stays away after a restart too, unless the platform is started with `--endpoint`
/// for it.
#[derive(Debug, Args)]
pub(crate) struct RemoveEndpointArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The endpoint
    pub(crate) name: String,
    /// Remove it although it has jobs that are not over, and cancel these
    #[arg(long)]
    pub(crate) force: bool,
}

/// Print the environment that a worker of an endpoint is started with. Each call names another worker.
#[derive(Debug, Args)]
pub(crate) struct EndpointEnvArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The endpoint
    pub(crate) name: String,
    /// How it is written
    #[arg(long, value_enum, default_value = "shell")]
    pub(crate) format: EnvFormat,
}

/// How an environment is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// `export NAME='value'`, for `eval "$(…)"`
    Shell,
    /// `NAME=value`, for `docker run --env-file`
    Docker,
    /// One object
    Json,
}
