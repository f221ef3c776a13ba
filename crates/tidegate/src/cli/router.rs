//! The arguments of `tidegate router`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_router::fleet::BackendFlag;

use super::{ListenArgs, RedisArgs, heading};
use crate::data_dir::DataDir;
use crate::units;

/// Examples at the end of `router --help`.
const EXAMPLES: &str = "\
Examples:
  # Two OpenAI-style servers behind one address
  tidegate router --backend http://10.0.0.5:8000 --backend http://10.0.0.6:8000 --port 8080
  # A Cog server
  tidegate router --backend cog=http://10.0.0.7:5000
  # A fleet with queues, limits and accounts, and a check of its file
  tidegate router --config fleet.toml
  tidegate router check fleet.toml";

/// Route requests to a fleet of backends.
///
/// Clients use the APIs of OpenAI, Workers AI or Cog; backends are OpenAI-style servers such as vLLM, Cog
/// servers, TGI, TEI, Triton and other tidegate servers. Requests wait in bounded queues, go to the best
/// endpoint and fail over to others. --config names the file of the fleet; docs/reference/fleet.md
/// describes it. SIGHUP and changes of the file reload it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct RouterArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RouterCommand>,
    /// Backend whose models are served, as `[KIND=]URL`; can be given several times. Kinds: openai, cog,
    /// tgi, tei, triton, tidegate [default: the kind that the backend answers like]
    #[arg(long = "backend", env = "TIDEGATE_BACKENDS", value_name = "[KIND=]URL", value_delimiter = ',', help_heading = heading::FLEET)]
    pub(crate) backends: Vec<BackendFlag>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// How many connections may be open at once [default: from the limit on file descriptors]
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", value_name = "N", value_parser = units::count, help_heading = heading::LISTENING)]
    pub(crate) max_connections: Option<usize>,
    /// Accept requests for this long after SIGTERM, while the health check already fails
    #[arg(long, env = "TIDEGATE_DRAIN_GRACE", value_name = "DURATION", default_value = "5s", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_grace: Duration,
    /// Let open requests and streams end for this long after that
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_timeout: Duration,
    /// Directory for requests with `queueRequest`, which survive a restart [default: none, such requests are
    /// refused]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", help_heading = heading::STORAGE)]
    pub(crate) data_dir: Option<DataDir>,
    /// PostgreSQL database for requests with `queueRequest`, instead of the data directory:
    /// `postgresql://USER:PASSWORD@HOST/DATABASE`. One router at a time can use it
    #[arg(long, env = "TIDEGATE_POSTGRES", value_name = "URL", hide_env_values = true, help_heading = heading::STORAGE)]
    pub(crate) postgres: Option<String>,
    /// Keep the result of each request with `queueRequest` for this long after its end. Longer than a whole
    /// batch takes, because clients read the results when all requests have ended
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "168h", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_for: Duration,
    #[command(flatten)]
    pub(crate) redis: RedisArgs,
}

/// What to do with a fleet besides serving it.
#[derive(Debug, Subcommand)]
pub(crate) enum RouterCommand {
    /// Check the file of a fleet without starting a router
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
