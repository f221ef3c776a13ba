//! The arguments of `tidegate api`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use tidegate_core::rate_counter::Rate;
use tidegate_net::Url;

use super::{
    EndpointArgs, FileStoreArgs, ListenArgs, OnLostArg, RedisArgs, UpkeepArgs, WebhookArgs, heading,
};
use crate::data_dir::DataDir;
use crate::{replicate_setup, units};

/// Examples at the end of `api --help`.
const EXAMPLES: &str = "\
Examples:
  # Serve the APIs of a cluster
  tidegate api --redis redis://redis:6379 --postgres postgres://tidegate@db/tidegate --token-file directors.token
  # Store files as well, in a folder that all API processes share
  tidegate api --redis redis://redis:6379 --postgres postgres://tidegate@db/tidegate --token-file directors.token \
    --data-dir /mnt/shared/tidegate
  # Run its jobs, on the machine of each GPU
  tidegate director hello --redis redis://redis:6379 --api http://api:5000 --token-file directors.token";

/// Serve the HTTP APIs of a cluster, whose jobs directors run.
///
/// Any number of these processes share one PostgreSQL database and one Redis server; a load balancer in
/// front of them may send any request to any of them. `tidegate director` runs the jobs, and registers its
/// models here.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApiArgs {
    /// Model folders, or folders of models, to register without running them: their jobs are accepted and
    /// wait before the first director starts
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Python interpreter that reads the models in DIR, unless `tidegate install` has made an environment for
    /// them [default: the one next to this program, the one of the active virtual environment, or `python3`]
    #[arg(long, env = "TIDEGATE_PYTHON", value_name = "PATH", help_heading = heading::MODEL)]
    pub(crate) python: Option<PathBuf>,
    /// Owner of the models in DIR, as for directors [default: from `image` in cog.yaml, or `local`]
    #[arg(long, env = "TIDEGATE_OWNER", value_name = "NAME", value_parser = replicate_setup::owner, help_heading = heading::MODEL)]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) redis: RedisArgs,
    #[command(flatten)]
    pub(crate) upkeep: UpkeepArgs,
    #[command(flatten)]
    pub(crate) endpoint: EndpointArgs,
    /// URL at which the other API processes reach this one: they forward requests for the endpoints that it
    /// owns [default: the address it listens on]
    #[arg(long, env = "TIDEGATE_ADVERTISE", value_name = "URL", value_parser = replicate_setup::public_url, help_heading = heading::ENDPOINTS)]
    pub(crate) advertise: Option<Url>,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    /// URL at which clients reach the cluster, for links in Replicate's API and its webhooks [default: the
    /// `Host` of each request]
    #[arg(long, env = "TIDEGATE_PUBLIC_URL", value_name = "URL", value_parser = replicate_setup::public_url, help_heading = heading::LISTENING)]
    pub(crate) public_url: Option<Url>,
    /// Time that the body of a request may make no progress
    #[arg(long, env = "TIDEGATE_BODY_TIMEOUT", value_name = "DURATION", default_value = "60s", value_parser = units::positive_duration, help_heading = heading::LISTENING)]
    pub(crate) body_timeout: Duration,
    /// Report predictions that missed their deadline before they started as `canceled` in Replicate's
    /// API; its older clients do not know `aborted`
    #[arg(long, env = "TIDEGATE_REPLICATE_LEGACY_STATUS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::LISTENING)]
    pub(crate) replicate_legacy_status: bool,
    /// Largest output of a prediction, all values together
    #[arg(long, env = "TIDEGATE_MAX_OUTPUT", value_name = "SIZE", default_value = "256MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_output: usize,
    /// Largest request body
    #[arg(long, env = "TIDEGATE_MAX_BODY", value_name = "SIZE", default_value = "100MiB", value_parser = units::size, help_heading = heading::QUEUE)]
    pub(crate) max_body: usize,
    /// Predictions that each account may create with the APIs of Replicate, OpenAI and Workers AI, such as
    /// `600/min`; requests above the rate get 429 [default: no limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT_CREATE", value_name = "RATE", value_parser = units::rate, help_heading = heading::QUEUE)]
    pub(crate) rate_limit_create: Option<Rate>,
    /// Other requests that each account may send to these APIs, such as `3000/min`; without
    /// --rate-limit-create also those that run a model with OpenAI's or the Workers AI API [default: no
    /// limit]
    #[arg(long, env = "TIDEGATE_RATE_LIMIT", value_name = "RATE", value_parser = units::rate, help_heading = heading::QUEUE)]
    pub(crate) rate_limit: Option<Rate>,
    /// What happens to a prediction whose director was lost; `retry` runs it once more
    #[arg(long, env = "TIDEGATE_ON_LOST", value_name = "ACTION", value_enum, default_value = "retry", help_heading = heading::STORAGE)]
    pub(crate) on_lost: OnLostArg,
    /// Keep finished predictions for this long
    #[arg(long, env = "TIDEGATE_KEEP_FOR", value_name = "DURATION", default_value = "1h", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_for: Duration,
    /// Keep input, output and logs of finished predictions for this long, if it is shorter than
    /// --keep-for; the prediction stays listed without them [default: as long as the prediction]
    #[arg(long, env = "TIDEGATE_KEEP_DATA_FOR", value_name = "DURATION", value_parser = units::duration, help_heading = heading::STORAGE)]
    pub(crate) keep_data_for: Option<Duration>,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    /// Directory for the files of Replicate's API. All API processes need the same one: a shared file
    /// system, or with --files-store s3://… any directory for files that are not complete [default: none,
    /// output files are data URIs and clients cannot upload files]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", help_heading = heading::FILES)]
    pub(crate) data_dir: Option<DataDir>,
    #[command(flatten)]
    pub(crate) files: FileStoreArgs,
    /// Largest file that a client may upload, largest stored input file, and largest output file
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size, help_heading = heading::FILES)]
    pub(crate) max_file: usize,
    /// Time that open requests and webhooks have to finish after SIGTERM
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = units::duration, help_heading = heading::PROCESS)]
    pub(crate) drain_timeout: Duration,
}

/// The servers and the intervals of a cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::CLUSTER)]
pub(crate) struct ClusterArgs {
    /// PostgreSQL database that records all jobs, as `postgres://USER@HOST/DATABASE`
    #[arg(
        long,
        env = "TIDEGATE_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) postgres: Option<String>,
    /// File with the token of the directors. TIDEGATE_DIRECTOR_TOKEN contains the token itself
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A director without a heartbeat for this long has lost its jobs
    #[arg(long, env = "TIDEGATE_LEASE", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration)]
    pub(crate) lease: Duration,
    /// Pause between two heartbeats of a director
    #[arg(long, env = "TIDEGATE_HEARTBEAT_INTERVAL", value_name = "DURATION", default_value = "5s", value_parser = units::positive_duration)]
    pub(crate) heartbeat_interval: Duration,
}
