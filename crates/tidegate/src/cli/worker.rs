//! The arguments of `tidegate worker`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tidegate_net::AllowedNetworks;

use super::batch::BatchArgs;
use super::{GpuArgs, ModelArgs, OnLostArg, UploadArgs};
use crate::data_dir::DataDir;
use crate::units;

/// Fetch jobs from a Runpod platform and run them.
///
/// TARGET is a script that calls `runpod.serverless.start`, or a Cog model folder. The worker reads
/// the addresses of the platform from RUNPOD_WEBHOOK_GET_JOB and RUNPOD_WEBHOOK_POST_OUTPUT. Without
/// them it runs one job, from --test-input or `test_input.json`, and exits.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Script with the handler, or model folder
    #[arg(default_value = ".", value_name = "TARGET")]
    pub(crate) target: PathBuf,
    /// Run this job, `{"input": …}`, print its result and exit
    #[arg(long, alias = "test_input", value_name = "JSON")]
    pub(crate) test_input: Option<String>,
    /// Jobs that run at the same time; more than one needs async code [default: from the handler's
    /// `concurrency_modifier`, `cog.yaml` or `@concurrent`, or 1]
    #[arg(long, env = "TIDEGATE_CONCURRENCY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: Option<u32>,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    /// Time that a canceled job has to end before its process is killed and replaced
    #[arg(long, env = "TIDEGATE_CANCEL_GRACE", value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    pub(crate) cancel_grace: Duration,
    /// Stop a job after this time and report it as failed [default: no limit]
    #[arg(long, env = "TIDEGATE_JOB_TIMEOUT", value_name = "DURATION", value_parser = units::duration)]
    pub(crate) job_timeout: Option<Duration>,
    /// Time that jobs and their results have to finish after SIGTERM; the next worker resumes the rest
    #[arg(long, env = "TIDEGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = units::duration)]
    pub(crate) drain_timeout: Duration,
    /// Directory for the journal of running jobs, which the next worker reads if this one is killed;
    /// `none` keeps it in memory [default: a folder for this target and RUNPOD_POD_ID under
    /// ~/.local/state/tidegate]
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<DataDir>,
    /// What happens to a job that was running when the worker died
    #[arg(
        long,
        env = "TIDEGATE_ON_LOST",
        value_name = "ACTION",
        value_enum,
        default_value = "retry"
    )]
    pub(crate) on_lost: OnLostArg,
    /// Largest input file and largest output file
    #[arg(long, env = "TIDEGATE_MAX_FILE", value_name = "SIZE", default_value = "5GiB", value_parser = units::size)]
    pub(crate) max_file: usize,
    /// Private networks that downloads of inputs may reach: networks or addresses such as
    /// `10.0.0.0/8,192.168.1.20`, or `all` [default: none, only public addresses]
    #[arg(long, env = "TIDEGATE_ALLOW_PRIVATE_NETWORKS", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = AllowedNetworks::parse)]
    pub(crate) allow_private_networks: AllowedNetworks,
    #[command(flatten)]
    pub(crate) gpu: GpuArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) upload: UploadArgs,
}
