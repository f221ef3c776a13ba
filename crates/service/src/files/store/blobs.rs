//! The bytes of the files that are kept, each content once.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tidegate_core::chain;
use tokio::io::AsyncWriteExt;

use super::refcount::{BlobGuard, BlobRefcounts};
use super::upload::{FileStoreError, FileWriter, PART, WrittenFile};

/// Where bytes are kept, and where they are written until all have come.
pub(super) struct BlobStore {
    blobs: Arc<dyn Blobs>,
    /// A folder of this process alone.
    spool: PathBuf,
    refcounts: BlobRefcounts,
}

impl BlobStore {
    /// Opens it; what another process was about to take in is thrown away.
    pub(super) fn open(blobs: Arc<dyn Blobs>, spool: PathBuf) -> std::io::Result<Self> {
        for entry in std::fs::read_dir(&spool)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(PART)
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "half a file could not be removed");
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

    /// Keeps the bytes of a file that has come, as long as somebody holds them.
    pub(super) async fn put(&self, received: &WrittenFile) -> Result<BlobGuard, FileStoreError> {
        let blob = self.refcounts.acquire(&received.sha256).await;
        self.blobs
            .put(&received.sha256, received.partial.path())
            .await?;
        Ok(blob)
    }

    /// Holds bytes that are there already.
    pub(super) async fn acquire(&self, digest: &str) -> BlobGuard {
        self.refcounts.acquire(digest).await
    }

    /// Opens bytes for reading. What is open can be read to its end, whatever is removed meanwhile.
    pub(super) async fn read(
        &self,
        digest: &str,
        range: Range<u64>,
    ) -> Result<Box<dyn BlobReader>, BlobError> {
        self.blobs.read(digest, range).await
    }

    /// Writes bytes into a new file that nobody else can read.
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

    /// Removes what nobody holds. What cannot be removed now is tried again the next time.
    pub(super) async fn remove_unreferenced(&self) {
        for removal in self.refcounts.take_unreferenced() {
            match self.blobs.remove(removal.digest()).await {
                Ok(()) => removal.done(),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), digest = removal.digest(), "the bytes of a file could not be removed")
                }
            }
        }
    }

    /// Finds what belongs to nothing: a process that died while it kept or removed a file has left it. It goes with
    /// the next `remove_unreferenced`, for there may be much of it and nobody should wait.
    pub(super) async fn register_existing(&self) -> Result<(), BlobError> {
        self.blobs
            .names()
            .await?
            .into_iter()
            .for_each(|name| self.refcounts.register(name));
        Ok(())
    }
}
