//! Moves the files of a data folder for `tidegate migrate`: opens the storage of the old server and that of
//! the new ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::file_index::StoredFile;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId, chain};
use tidegate_service::{ContentCopyError, FileLimits, FileStore, MemoryFileIndex};
use tidegate_store::{ContentCopy, DataFolderMigration, FileTransfer};

use crate::cli::MigrateArgs;
use crate::data_dir::{self, DataDir};
use crate::file_setup::FILE_SECRET;
use crate::files_store::{self, BlobLocation, LocationUsers};
use crate::replicate_setup::persistent_secret;
use crate::store_ports::FilesFolder;
use crate::usage_error::UsageError;

/// Checks that the files have a target, and that it can be used: from the start of the migration on, the old
/// server cannot be started again.
pub(crate) async fn check_target(args: &MigrateArgs, files: usize) -> anyhow::Result<()> {
    if files == 0 {
        return Ok(());
    }
    if args.files_store.is_none() && args.target_data_dir.is_none() {
        return Err(UsageError::new(format!(
            "cannot migrate: the data folder has {files} files, and the storage of the new servers is missing"
        ))
        .hint(
            "give their --files-store URL, or their data folder with --target-data-dir DIR; \
             --without-files leaves the files behind",
        )
        .into());
    }
    target_folder(args)?;
    if let Some(url) = &args.files_store {
        files_store::check(url).await.map_err(|error| {
            UsageError::new(format!("cannot migrate: {error:#}"))
                .hint("correct --files-store, or the AWS_… variables")
        })?;
    }
    Ok(())
}

/// The files of the old server and the storage of the new ones.
pub(crate) struct FileMigration {
    source: FileStore,
    target: BlobLocation,
    /// Seals the placeholders in outputs.
    secret: Vec<u8>,
}

impl FileMigration {
    /// Opens both. `documents` are those of the database, with the documents of the data folder.
    pub(crate) async fn open(
        args: &MigrateArgs,
        migration: &DataFolderMigration,
        documents: &dyn Documents,
    ) -> anyhow::Result<Self> {
        let folder = target_folder(args)?;
        let users = LocationUsers::Cluster;
        let target =
            files_store::open(args.files_store.as_ref(), &folder, documents, users).await?;
        Ok(Self {
            source: open_source(args, migration.documents()).await?,
            target,
            secret: persistent_secret(Some(documents), FILE_SECRET).await?,
        })
    }
}

/// The folder for files of the new servers. If they use a bucket, their own folders are not needed: files are
/// in the data folder of the old server until they are complete.
fn target_folder(args: &MigrateArgs) -> Result<FilesFolder, UsageError> {
    let data_dir = args.target_data_dir.clone().map(DataDir::At);
    let folder = data_dir::open_for_cluster(data_dir.as_ref())?;
    Ok(folder.unwrap_or_else(|| own_folder(&args.data_dir)))
}

fn own_folder(data_dir: &Path) -> FilesFolder {
    FilesFolder::Own(data_dir.join(data_dir::FILES))
}

async fn open_source(
    args: &MigrateArgs,
    documents: Arc<dyn Documents>,
) -> anyhow::Result<FileStore> {
    const FAILED: &str = "failed to open the files of the data folder";
    let (url, folder) = (args.source_files_store.as_ref(), own_folder(&args.data_dir));
    let users = LocationUsers::OneProcess;
    let BlobLocation { blobs, spool } = files_store::open(url, &folder, &*documents, users).await?;
    let index = MemoryFileIndex::open(documents, &*blobs).await;
    // Files are only read.
    let limits = FileLimits {
        upload_retention: Duration::MAX,
        output_retention: Duration::MAX,
        max_bytes_per_account: None,
    };
    FileStore::open(blobs, spool, Arc::new(index.context(FAILED)?), limits).context(FAILED)
}

#[async_trait]
impl FileTransfer for FileMigration {
    async fn copy_content(&self, file: &StoredFile) -> Result<ContentCopy, StoreError> {
        let BlobLocation { blobs, spool } = &self.target;
        let copied = self.source.copy_content(file, &**blobs, spool.folder());
        match copied.await {
            Ok(()) => Ok(ContentCopy::Stored),
            Err(error @ ContentCopyError::Source(_)) => {
                tracing::error!(file = file.id, error = %chain(&error), "failed to read a file, left it behind");
                Ok(ContentCopy::Unreadable)
            }
            Err(error @ ContentCopyError::Target(_)) => {
                Err(StoreError::Unavailable(chain(&error).to_string()))
            }
        }
    }

    fn adapt_output(&self, account: &Account, job: &JobId, output: &Bytes) -> Bytes {
        self.source
            .seal_placeholders(&self.secret, account, job, output)
    }
}
