//! The contents of stored files: equal contents are one blob.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tokio::io::AsyncWriteExt;

use super::upload::{FileStoreError, FileWriter, PART, WrittenFile};

/// A partial file that was not written for this long has no writer.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder for incoming files.
#[derive(Debug, Clone)]
pub enum Spool {
    /// No other process uses it.
    Own(PathBuf),
    /// Several processes use it.
    Shared(PathBuf),
}

impl Spool {
    /// The folder.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Own(folder) | Self::Shared(folder) => folder,
        }
    }
}

/// The blobs, and the spool folder for incoming files.
pub(super) struct BlobStore {
    pub(super) blobs: Arc<dyn Blobs>,
    spool: Spool,
}

impl BlobStore {
    /// Opens the store and removes the partial files of a previous process.
    pub(super) fn open(blobs: Arc<dyn Blobs>, spool: Spool) -> std::io::Result<Self> {
        match &spool {
            Spool::Own(folder) => remove_parts(folder, |_| true)?,
            Spool::Shared(_) => {}
        }
        Ok(Self { blobs, spool })
    }

    /// Removes the partial files that no process writes any more.
    pub(super) fn remove_old_parts(&self) {
        let is_abandoned = |file: &std::fs::DirEntry| {
            let written = file.metadata().and_then(|file| file.modified());
            written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= ABANDONED_AFTER))
        };
        if let Err(error) = remove_parts(self.spool.folder(), is_abandoned) {
            tracing::warn!(%error, "failed to look for partial files");
        }
    }

    pub(super) async fn create_writer(
        &self,
        expected: u64,
        limit: u64,
    ) -> Result<FileWriter, FileStoreError> {
        FileWriter::begin(self.spool.folder(), expected, limit).await
    }

    /// Stores the content of a written file. An entry of the index names it already, so that it is not
    /// removed.
    pub(super) async fn put(&self, written: &WrittenFile) -> Result<(), FileStoreError> {
        Ok(self
            .blobs
            .put(&written.sha256, written.partial.path())
            .await?)
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
}

fn remove_parts(folder: &Path, filter: impl Fn(&std::fs::DirEntry) -> bool) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(PART)
            && filter(&entry)
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::warn!(%error, path = %entry.path().display(), "failed to remove partial file");
        }
    }
    Ok(())
}
