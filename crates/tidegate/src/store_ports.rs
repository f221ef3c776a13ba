//! The ports of the open store, whichever database is behind them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::file_index::FileIndex;
use tidegate_core::store::{Documents, Store, StoreMetrics};
use tidegate_store::{PostgresStore, SqliteStore};

/// The ports of a store.
#[derive(Clone)]
pub(crate) struct StorePorts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) documents: Arc<dyn Documents>,
    /// The index of files, if the database has one. Otherwise the documents have the metadata of files.
    pub(crate) file_index: Option<Arc<dyn FileIndex>>,
    pub(crate) metrics: Arc<StoreMetrics>,
}

impl From<Arc<SqliteStore>> for StorePorts {
    fn from(store: Arc<SqliteStore>) -> Self {
        Self {
            metrics: store.meter(),
            documents: Arc::clone(&store) as _,
            file_index: None,
            store,
        }
    }
}

impl From<Arc<PostgresStore>> for StorePorts {
    fn from(store: Arc<PostgresStore>) -> Self {
        Self {
            metrics: store.meter(),
            documents: Arc::clone(&store) as _,
            file_index: Some(Arc::clone(&store) as _),
            store,
        }
    }
}

/// What a server keeps when it stops: jobs and documents in a store, and files.
pub(crate) struct DurableState {
    /// Identifies the store: a folder, or the address of a database.
    pub(crate) name: String,
    pub(crate) ports: StorePorts,
    /// Where the files are. Absent if the store is a database elsewhere and there is no data directory.
    pub(crate) files: Option<FilesFolder>,
}

impl DurableState {
    /// The data directory, if the store is in it.
    pub(crate) fn sqlite_folder(&self) -> Option<&Path> {
        match self.files.as_ref()? {
            FilesFolder::Own(folder) => folder.parent(),
            FilesFolder::Shared(_) => None,
        }
    }

    /// The data directory, if there is one.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        let (FilesFolder::Own(folder) | FilesFolder::Shared(folder)) = self.files.as_ref()?;
        folder.parent()
    }
}

/// The folder for files in the data directory.
pub(crate) enum FilesFolder {
    /// All files in it are of this store, which is in the same data directory.
    Own(PathBuf),
    /// Files of several stores may be in it.
    Shared(PathBuf),
}
