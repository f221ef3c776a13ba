//! The arguments of `tidegate migrate`.

use std::path::PathBuf;

use clap::Args;

/// Examples at the end of `migrate --help`.
const EXAMPLES: &str = "\
Examples:
  # Stop the server, then move its jobs to the database of a cluster
  tidegate migrate /var/lib/tidegate --postgres postgres://tidegate@db/tidegate";

/// Move the jobs of a data folder to a PostgreSQL database.
///
/// Moves jobs, webhooks with their schedule, deployments, models and secrets of a stopped `tidegate serve`,
/// for `tidegate api` or `serve --postgres`. The database must be new. An interrupted migration is finished by
/// running the command again. The data folder is kept, and no server opens it any more.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// Data folder of the server, its --data-dir
    #[arg(value_name = "DATA_DIR")]
    pub(crate) data_dir: PathBuf,
    /// PostgreSQL database, as `postgres://USER@HOST/DATABASE`
    #[arg(
        long,
        env = "TIDEGATE_POSTGRES",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) postgres: Option<String>,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
