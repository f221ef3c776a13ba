//! The contents of stored files: equal contents are one blob.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tidegate_core::chain;
use tokio::io::AsyncWriteExt;

use super::refcount::{BlobGuard, BlobRefcounts};
use super::upload::{FileStoreError, FileWriter, PART, WrittenFile};

/// The blobs, with their reference counts, and the spool folder for incoming files.
pub(super) struct BlobStore {
    blobs: Arc<dyn Blobs>,
    /// The folder for incoming files; no other process uses it.
    spool: PathBuf,
    refcounts: BlobRefcounts,
}

impl BlobStore {
    /// Opens the store and removes the partial files of a previous process.
    pub(super) fn open(blobs: Arc<dyn Blobs>, spool: PathBuf) -> std::io::Result<Self> {
        for entry in std::fs::read_dir(&spool)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(PART)
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "failed to remove partial file");
            }
        }
        Ok(Self {
            blobs,
            spool,
            refcounts: BlobRefcounts::default(),
        })
    }

    pub(super) async fn create_writer(
        &self,
        expected: u64,
        limit: u64,
    ) -> Result<FileWriter, FileStoreError> {
        FileWriter::begin(&self.spool, expected, limit).await
    }

    /// Stores the content of a written file. The blob exists at least as long as the guard.
    pub(super) async fn put(&self, written: &WrittenFile) -> Result<BlobGuard, FileStoreError> {
        let blob = self.refcounts.acquire(&written.sha256).await;
        self.blobs
            .put(&written.sha256, written.partial.path())
            .await?;
        Ok(blob)
    }

    /// References an existing blob.
    pub(super) async fn acquire(&self, digest: &str) -> BlobGuard {
        self.refcounts.acquire(digest).await
    }

    /// Opens a blob for reading. An open blob can be read to its end even if it is removed
    /// meanwhile.
    pub(super) async fn read(
        &self,
        digest: &str,
        range: Range<u64>,
    ) -> Result<Box<dyn BlobReader>, BlobError> {
        self.blobs.read(digest, range).await
    }

    /// Copies a blob to a new file that only the server's user can read.
    pub(super) async fn copy(
        &self,
        digest: &str,
        size: u64,
        to: &Path,
    ) -> Result<(), FileStoreError> {
        let mut from = self.read(digest, 0..size).await?;
        let mut file = tokio::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)
            .await?;
        while let Some(bytes) = from.next().await? {
            file.write_all(&bytes).await?;
        }
        Ok(file.flush().await?)
    }

    /// Removes the blobs without references. Failed removals are retried by the next call.
    pub(super) async fn remove_unreferenced(&self) {
        for removal in self.refcounts.take_unreferenced() {
            match self.blobs.remove(removal.digest()).await {
                Ok(()) => removal.done(),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), digest = removal.digest(), "failed to remove blob")
                }
            }
        }
    }

    /// Registers all blobs, to find the unreferenced ones that a process left when it died while it
    /// stored or removed a file. The next `remove_unreferenced` removes them: there may be many,
    /// and the start does not wait for them.
    pub(super) async fn register_existing(&self) -> Result<(), BlobError> {
        self.blobs
            .names()
            .await?
            .into_iter()
            .for_each(|name| self.refcounts.register(name));
        Ok(())
    }
}
