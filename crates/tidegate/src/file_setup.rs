//! Opens the file store of Replicate's API, for one server or for the API processes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::file_index::FileIndex;
use tidegate_http::replicate::FileLinks;
use tidegate_service::{FileLimits, FileStore, MemoryFileIndex};

use crate::cli::FileStoreArgs;
use crate::files_store::{self, BlobLocation, LocationUsers};
use crate::replicate_setup::persistent_secret;
use crate::store_ports::DurableState;
use crate::usage_error::UsageError;

/// The name of the secret that signs URLs and seals placeholders.
pub(crate) const FILE_SECRET: &str = "files-secret";

/// The file store and the URLs of its files.
#[derive(Clone)]
pub(crate) struct StoredFiles {
    pub(crate) store: Arc<FileStore>,
    pub(crate) links: Arc<FileLinks>,
}

/// Opens the file store, if there is a folder for it. The files of jobs are kept for `keep_jobs_for`.
pub(crate) async fn open(
    args: &FileStoreArgs,
    keep_jobs_for: Duration,
    state: Option<&DurableState>,
    users: LocationUsers,
) -> anyhow::Result<Option<StoredFiles>> {
    let folder = state.and_then(|state| Some((state.files.as_ref()?, &state.ports)));
    let Some((folder, ports)) = folder else {
        return match &args.files_store {
            None => Ok(None),
            Some(_) => Err(UsageError::new(
                "--files-store needs a data directory, for files that are not complete",
            )
            .hint("give a directory with --data-dir DIR")
            .into()),
        };
    };
    let documents = &ports.documents;
    let BlobLocation { blobs, spool } =
        files_store::open(args.files_store.as_ref(), folder, &**documents, users).await?;
    let limits = FileLimits {
        upload_retention: args.keep_files_for,
        output_retention: keep_jobs_for,
        max_bytes_per_account: args.max_stored_files.map(|bytes| bytes as u64),
    };
    let secret = persistent_secret(Some(&**documents), FILE_SECRET).await?;
    const FAILED: &str = "failed to open the file store";
    let store = match &ports.file_index {
        Some(index) => FileStore::open(blobs, spool, Arc::clone(index), limits)
            .context(FAILED)?
            .with_sealed_placeholders(&secret),
        None => {
            let index = MemoryFileIndex::open(Arc::clone(documents), &*blobs).await;
            let index = Arc::new(index.context(FAILED)?) as Arc<dyn FileIndex>;
            FileStore::open(blobs, spool, index, limits).context(FAILED)?
        }
    };
    let store = Arc::new(store);
    let links = Arc::new(FileLinks::new(Arc::clone(&store), &secret, keep_jobs_for));
    Ok(Some(StoredFiles { store, links }))
}

/// How long the files of a job are kept: they belong to its data.
pub(crate) fn keep_jobs_for(keep_for: Duration, keep_data_for: Option<Duration>) -> Duration {
    keep_data_for.map_or(keep_for, |data| data.min(keep_for))
}
