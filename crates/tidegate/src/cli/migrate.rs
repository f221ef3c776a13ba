//! The arguments of `tidegate migrate`.

use std::path::PathBuf;

use clap::Args;

use crate::files_store::FilesStoreUrl;

/// Examples at the end of `migrate --help`.
const EXAMPLES: &str = "\
Examples:
  # Stop the server, then move its jobs to the database of a cluster
  tidegate migrate /var/lib/tidegate --postgres postgres://tidegate@db/tidegate

  # The same with the files, for API processes that have this --files-store
  tidegate migrate /var/lib/tidegate --postgres postgres://tidegate@db/tidegate --files-store s3://models";

/// Move the jobs and files of a data folder to a PostgreSQL database and the storage of a cluster.
///
/// Moves jobs, webhooks with their schedule, files, deployments, models and secrets of a stopped `tidegate serve`,
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
    /// Storage for files of the new servers: their --files-store, as `s3://BUCKET[/PREFIX]` or `file:///FOLDER`
    #[arg(long, env = "TIDEGATE_FILES_STORE", value_name = "URL")]
    pub(crate) files_store: Option<FilesStoreUrl>,
    /// Data folder of the new servers: their --data-dir, which has the files if they have no --files-store
    #[arg(long, value_name = "DIR")]
    pub(crate) target_data_dir: Option<PathBuf>,
    /// Storage for files of the server, if it had another --files-store than the new ones
    #[arg(long, value_name = "URL")]
    pub(crate) source_files_store: Option<FilesStoreUrl>,
    /// Leave the files in the data folder. The links to them do not work any more
    #[arg(long, conflicts_with_all = ["target_data_dir", "source_files_store"])]
    pub(crate) without_files: bool,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
