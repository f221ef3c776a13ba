//! The arguments that decide how many processes of a model run, besides `--workers`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_core::pool_status::SpareKind;
use tidegate_runtime::Autoscaling;

use super::heading;
use crate::units;
use crate::usage_error::UsageError;
use crate::worker_count::WorkerCount;

/// When processes of a model are added and removed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::PROCESS)]
pub(crate) struct ScalingArgs {
    /// With `--workers MIN..MAX`: start another process when requests have had to wait for this time
    /// without a break
    #[arg(long, env = "TIDEGATE_SCALE_UP_AFTER", value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    pub(crate) scale_up_after: Duration,
    /// With `--workers MIN..MAX`: stop a process when one fewer would have been enough for this time
    #[arg(long, env = "TIDEGATE_SCALE_DOWN_AFTER", value_name = "DURATION", default_value = "5m", value_parser = units::duration)]
    pub(crate) scale_down_after: Duration,
    /// Keep another process that takes the place of one that dies: `imported` has imported the model's
    /// code and uses no GPU memory, `loaded` is set up and needs the memory of one more process
    #[arg(
        long,
        env = "TIDEGATE_SPARE",
        value_name = "KIND",
        value_enum,
        default_value = "none"
    )]
    pub(crate) spare: SpareArg,
}

/// The value of `--spare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpareArg {
    /// No spare process
    None,
    /// The model's code is imported
    Imported,
    /// The model is set up
    Loaded,
}

impl ScalingArgs {
    /// How the number of processes follows the load.
    pub(crate) fn of(&self, workers: WorkerCount) -> Option<Autoscaling> {
        workers.autoscaling(self.scale_up_after, self.scale_down_after)
    }

    /// The kind of the spare process. A server that replaces no process has no use for one.
    pub(crate) fn spare_kind(&self, respawn: bool) -> Result<Option<SpareKind>, UsageError> {
        let kind = match self.spare {
            SpareArg::None => return Ok(None),
            SpareArg::Imported => SpareKind::Imported,
            SpareArg::Loaded => SpareKind::Loaded,
        };
        if !respawn {
            let usage = UsageError::new("--spare has no effect with --no-respawn");
            return Err(usage.hint("remove one of them"));
        }
        Ok(Some(kind))
    }
}
