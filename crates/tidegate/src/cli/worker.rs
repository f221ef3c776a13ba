//! The command line of `tidegate worker`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_net::AllowedNetworks;

use super::{ModelArgs, OnLostArg};
use crate::data_dir::DataDir;
use crate::units;

/// Fetch jobs from a Runpod platform and run them.
///
/// TARGET is a script that calls `runpod.serverless.start`, or a Cog model folder. The platform is where the
/// variables RUNPOD_WEBHOOK_GET_JOB and RUNPOD_WEBHOOK_POST_OUTPUT say. Without them one job is run, from
/// --test-input or `test_input.json`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The script with the handler, or the model's folder
    #[arg(default_value = ".", value_name = "TARGET")]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Run this one job, `{"input": …}`, print what came of it, and end
    #[arg(long, alias = "test_input", value_name = "JSON")]
    pub(crate) test_input: Option<String>,
    /// How many jobs run at once; more than one needs async code [default: what the handler's
    /// `concurrency_modifier`, `cog.yaml` or `@concurrent` says, or 1]
    #[arg(long, env = "TIDEGATE_CONCURRENCY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: Option<u32>,
    /// How long a stopped job may go on before its process is killed and replaced
    #[arg(long, env = "TIDEGATE_CANCEL_GRACE", value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    pub(crate) cancel_grace: Duration,
    /// How long one job may take; then it is stopped and has failed [default: for ever]
    #[arg(long, env = "TIDEGATE_JOB_TIMEOUT", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) job_timeout: Option<Duration>,
    /// How long jobs and their results may go on after SIGTERM before they are left to the next worker
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
    /// Where jobs in hand are written down, so that the next worker knows them when this one is killed;
    /// `none` keeps them in memory only [default: a folder for this target and RUNPOD_POD_ID under
    /// ~/.local/state/tidegate]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<DataDir>,
    /// What becomes of a job that was worked on when the worker died
    #[arg(long, env = "TIDEGATE_ON_LOST", value_enum, default_value = "retry")]
    pub(crate) on_lost: OnLostArg,
    /// The largest file that an input names or brings along, and the largest output file that is uploaded
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size)]
    pub(crate) max_file: usize,
    /// Private networks that downloads of inputs may reach [default: none, only public addresses are
    /// called]
    #[arg(long, env = "TIDEGATE_ALLOW_PRIVATE_NETWORKS", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = AllowedNetworks::parse)]
    pub(crate) allow_private_networks: AllowedNetworks,
}
