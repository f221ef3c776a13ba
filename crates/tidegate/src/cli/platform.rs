//! The arguments of `tidegate platform` and `tidegate endpoints`.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use tidegate_net::Url;

use super::{ConnectArgs, ListenArgs, WebhookArgs, heading};
use crate::data_dir::DataDir;
use crate::{replicate_setup, units};

/// Examples at the end of `platform --help`.
const EXAMPLES: &str = "\
Examples:
  # Serve one endpoint on this machine
  tidegate platform --endpoint hello
  # Start a worker for it
  eval \"$(tidegate endpoints env hello)\" && tidegate worker handler.py";

/// The endpoints of a server, whose jobs are fetched by workers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::ENDPOINTS)]
pub(crate) struct EndpointArgs {
    /// Endpoint to serve to clients and workers of Runpod; can be given several times. Endpoints of
    /// previous runs are served as well
    #[arg(
        long = "endpoint",
        env = "TIDEGATE_ENDPOINTS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) endpoints: Vec<String>,
    /// Requeue the jobs of a worker that has sent no heartbeat for this long, or has never sent one
    /// since it took them
    #[arg(long, env = "TIDEGATE_WORKER_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration)]
    pub(crate) worker_timeout: Duration,
    /// Apply the rate limits of Runpod's cloud to endpoints; requests above them get 429
    #[arg(long, env = "TIDEGATE_CLOUD_LIMITS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) cloud_limits: bool,
}

/// Serve Runpod endpoints to clients and workers.
///
/// Clients submit jobs to an endpoint with Runpod's API; workers that use Runpod's SDK fetch and run
/// them. The server itself runs no model: `tidegate serve DIR --endpoint NAME` serves models and
/// endpoints. `tidegate endpoints env NAME` prints the environment of a worker.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlatformArgs {
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// URL at which workers reach the server [default: the address it listens on]
    #[arg(long, env = "TIDEGATE_PUBLIC_URL", value_name = "URL", value_parser = replicate_setup::public_url, help_heading = heading::LISTENING)]
    pub(crate) public_url: Option<Url>,
    /// Largest output of a job, all parts together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_output: usize,
    /// Memory for the inputs of waiting jobs. Above it, inputs wait in the data directory; without
    /// one, new jobs are refused
    #[arg(long, env = "TIDEGATE_WAITING_MEMORY", value_name = "SIZE", default_value = "64MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) waiting_memory: usize,
    /// Largest result or stream part that a worker may send; the job fails if it is larger
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "SIZE", default_value = "100MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_body: usize,
    /// Directory for jobs and endpoints, which then survive a restart; `none` keeps them in memory
    /// [default: a folder for this port under ~/.local/state/tidegate; none with --port 0]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", help_heading = heading::STORAGE)]
    pub(crate) data_dir: Option<DataDir>,
    /// Keep finished jobs for this long; Runpod's own limits (30 minutes, 1 minute after `runsync`)
    /// apply as well
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "30m", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_for: Duration,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    /// Time to wait after SIGTERM for jobs that workers run; the next run resumes the rest
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_timeout: Duration,
}

/// Manage the endpoints of a running platform.
///
/// If the platform has tokens, an admin token is required.
#[derive(Debug, Args)]
pub(crate) struct EndpointsArgs {
    #[command(subcommand)]
    pub(crate) command: EndpointsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointsCommand {
    List(ListEndpointsArgs),
    Add(AddEndpointArgs),
    Remove(RemoveEndpointArgs),
    Env(EndpointEnvArgs),
}

/// List the endpoints
#[derive(Debug, Args)]
pub(crate) struct ListEndpointsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Print the server's response as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Add an endpoint; it survives a restart
#[derive(Debug, Args)]
pub(crate) struct AddEndpointArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Name of the endpoint: lower-case letters, digits, `-` and `_`
    pub(crate) name: String,
}

/// Remove an endpoint permanently.
///
/// It comes back only if the platform is started with `--endpoint` for it.
#[derive(Debug, Args)]
pub(crate) struct RemoveEndpointArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Name of the endpoint
    pub(crate) name: String,
    /// Remove the endpoint even if it has unfinished jobs, and cancel them
    #[arg(long)]
    pub(crate) force: bool,
}

/// Print the environment for a worker of an endpoint.
///
/// Every call creates a new worker id.
#[derive(Debug, Args)]
pub(crate) struct EndpointEnvArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Name of the endpoint
    pub(crate) name: String,
    /// Output format
    #[arg(long, value_enum, default_value = "shell")]
    pub(crate) format: EnvFormat,
}

/// The format of a printed environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// `export NAME='value'`, for `eval "$(…)"`
    Shell,
    /// `NAME=value`, for `docker run --env-file`
    Docker,
    /// One JSON object
    Json,
}
