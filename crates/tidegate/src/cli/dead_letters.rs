//! The arguments of `tidegate dead-letters`.

use clap::{Args, Subcommand};
use tidegate_queue::redis::RedisUrls;

/// Examples at the end of `dead-letters --help`.
const EXAMPLES: &str = "\
Examples:
  # Why directors do not get these messages
  tidegate dead-letters list --redis redis://redis:6379
  # Put one back into its queue
  tidegate dead-letters replay 0.1766000000000-0 --redis redis://redis:6379";

/// List, replay or drop the dead letters of the queues in Redis.
///
/// A dead letter is a message that no process gets any more: it cannot be read, or it was handed out too
/// often without a start of its job (--max-deliveries).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    pub(crate) command: DeadLettersCommand,
    /// Redis servers of the queue, as for `tidegate api`
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_REDIS",
        value_name = "URL[,URL…]",
        hide_env_values = true
    )]
    pub(crate) redis: Option<RedisUrls>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    List(ListDeadLettersArgs),
    Replay(ReplayDeadLettersArgs),
    Drop(DropDeadLettersArgs),
}

/// List dead letters with the reason, oldest first
#[derive(Debug, Args)]
pub(crate) struct ListDeadLettersArgs {
    /// Maximum number of dead letters
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print a JSON array with all fields
    #[arg(long)]
    pub(crate) json: bool,
}

/// Put dead letters back into their queues.
///
/// Prints the ids of those that were put back. A job that has ended does not run again; its message is
/// removed by the next director that takes it.
#[derive(Debug, Args)]
pub(crate) struct ReplayDeadLettersArgs {
    #[command(flatten)]
    pub(crate) chosen: ChosenDeadLetters,
}

/// Remove dead letters for ever.
///
/// Prints the ids of those that were removed. The jobs are not changed.
#[derive(Debug, Args)]
pub(crate) struct DropDeadLettersArgs {
    #[command(flatten)]
    pub(crate) chosen: ChosenDeadLetters,
}

/// Which dead letters.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChosenDeadLetters {
    /// Ids of dead letters, or of their jobs
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) ids: Vec<String>,
    /// All dead letters
    #[arg(long)]
    pub(crate) all: bool,
}
