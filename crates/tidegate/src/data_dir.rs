//! The data directory: `--data-dir`, or a default for the model and the port.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::chain;
use tidegate_store::{SqliteOptions, SqliteStore, StoreOpenError};

use crate::store_ports::{DurableState, FilesFolder};
use crate::usage_error::UsageError;

/// The value of `--data-dir`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataDir {
    /// Jobs stay in memory.
    None,
    /// This folder.
    At(PathBuf),
}

impl DataDir {
    /// The folder.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::None => None,
            Self::At(folder) => Some(folder),
        }
    }
}

impl FromStr for DataDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it is empty; give a folder, or `none` to keep jobs in memory".to_owned()),
            "none" => Ok(Self::None),
            folder => Ok(Self::At(folder.into())),
        }
    }
}

/// The folders for files in a data directory: of the store in it, and of databases elsewhere.
pub(crate) const FILES: &str = "files";
const DATABASE_FILES: &str = "database-files";

/// How long to wait for a server that shuts down and still uses the data directory.
const STOPPING_SERVER: Duration = Duration::from_secs(10);
/// The time between two attempts meanwhile.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// Opens the store in the data directory. If the default directory is not writable, jobs stay in memory.
/// Waits for a server that uses the directory and shuts down.
pub(crate) async fn open(
    data_dir: Option<&DataDir>,
    model: &Path,
    port: u16,
) -> Result<Option<DurableState>, UsageError> {
    let (folder, is_given) = match folder(data_dir, model, port) {
        None => return Ok(None),
        Some(found) => found,
    };
    match open_store(&folder).await {
        Ok(store) => Ok(Some(DurableState {
            name: name(&folder),
            ports: Arc::new(store).into(),
            files: Some(FilesFolder::Own(folder.join(FILES))),
        })),
        Err(error) if is_given || was_migrated(&error) => Err(open_error(&error)),
        Err(error) => {
            let reason = chain(&error).to_string();
            tracing::warn!(
                reason,
                "failed to open the data directory, jobs do not survive a restart; set --data-dir"
            );
            Ok(None)
        }
    }
}

/// Opens the store, as soon as a server that shuts down has closed it.
async fn open_store(folder: &Path) -> Result<SqliteStore, StoreOpenError> {
    let give_up_at = Instant::now() + STOPPING_SERVER;
    let mut has_logged = false;
    loop {
        match SqliteStore::open(folder, &SqliteOptions::default()) {
            Err(StoreOpenError::InUse {
                is_stopping: true,
                owner,
                ..
            }) if Instant::now() < give_up_at => {
                if !has_logged {
                    tracing::info!(
                        owner,
                        max_s = STOPPING_SERVER.as_secs(),
                        "waiting for a server that is stopping to release the data directory"
                    );
                    has_logged = true;
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
            result => return result,
        }
    }
}

/// Tells the next server that this one will release the data directory soon. It may start at once, because
/// the port is free before the last jobs have ended.
pub(crate) fn announce_stop(folder: Option<&Path>) {
    if let Some(folder) = folder
        && let Err(error) = SqliteStore::announce_stop(folder)
    {
        tracing::debug!(%error, "failed to announce the stop in the data directory");
    }
}

/// Whether the jobs are in a database: a server without them would surprise its clients.
fn was_migrated(error: &StoreOpenError) -> bool {
    matches!(
        error,
        StoreOpenError::Migrated { .. } | StoreOpenError::HalfMigrated { .. }
    )
}

/// The folder for the files of a server whose jobs are in a database elsewhere, if there is one.
pub(crate) fn open_for_files(
    data_dir: Option<&DataDir>,
    model: &Path,
    port: u16,
) -> Result<Option<FilesFolder>, UsageError> {
    let Some((folder, is_given)) = folder(data_dir, model, port) else {
        return Ok(None);
    };
    let folder = folder.join(DATABASE_FILES);
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    match created {
        Ok(()) => Ok(Some(FilesFolder::Shared(folder))),
        Err(error) if is_given => Err(open_error(&error)),
        Err(error) => {
            let reason = error.to_string();
            tracing::warn!(
                reason,
                "failed to open the data directory, files cannot be stored; set --data-dir"
            );
            Ok(None)
        }
    }
}

/// The folder for the files of the API processes of a cluster, if there is one.
pub(crate) fn open_for_cluster(
    data_dir: Option<&DataDir>,
) -> Result<Option<FilesFolder>, UsageError> {
    let Some(DataDir::At(folder)) = data_dir else {
        return Ok(None);
    };
    let folder = folder.join(DATABASE_FILES);
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    match created {
        Ok(()) => Ok(Some(FilesFolder::Shared(folder))),
        Err(error) => Err(
            UsageError::new(format!("failed to open --data-dir: {}", chain(&error)))
                .hint("give another folder, or `none` to store no files"),
        ),
    }
}

fn name(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.display().to_string()
}

/// The data directory, and whether the user has given it.
fn folder(data_dir: Option<&DataDir>, model: &Path, port: u16) -> Option<(PathBuf, bool)> {
    match data_dir {
        Some(DataDir::None) => None,
        Some(DataDir::At(folder)) => Some((folder.clone(), true)),
        // The next run has another port, so it would not find this directory.
        None if port == 0 => None,
        None => Some((default_path(model, &port.to_string())?, false)),
    }
}

fn open_error(error: &dyn std::error::Error) -> UsageError {
    UsageError::new(format!("failed to open --data-dir: {}", chain(error)))
        .hint("give another folder, or `none` to keep jobs in memory")
}

/// The default directory. `suffix` is the port or the id of the worker, so that each server and worker
/// has its own.
pub(crate) fn default_path(model: &Path, suffix: &str) -> Option<PathBuf> {
    let name = model.file_name().map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    Some(state_folder()?.join(format!("{name}-{:08x}-{suffix}", hasher.finish() as u32)))
}

/// The folder with the default directories of all servers.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("tidegate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_a_keyword_and_an_empty_value_is_an_error() {
        assert_eq!("none".parse(), Ok(DataDir::None));
        assert_eq!("./none".parse(), Ok(DataDir::At("./none".into())));
        assert!("".parse::<DataDir>().is_err());
    }

    #[test]
    fn two_servers_have_different_directories() {
        let paths: Vec<_> = [("/a/m", "1"), ("/b/m", "1"), ("/a/m", "2")]
            .iter()
            .filter_map(|(model, port)| default_path(Path::new(model), port))
            .collect();
        assert!(
            paths
                .iter()
                .all(|path| paths.iter().filter(|other| *other == path).count() == 1),
            "{paths:?}"
        );
    }
}
