//! Writes an incoming file to the spool folder: limits its size, checks the free disk space and
//! computes its digests.

use std::io;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use ring::digest;
use tidegate_core::blobs::BlobError;
use tidegate_core::chain;
use tidegate_core::file_index::ReserveError;
use tidegate_core::store::StoreError;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::files::free_space;
use crate::random;

/// The extension of a file that is being written.
pub(super) const PART: &str = ".part";
/// The free disk space is checked again after this many bytes. Less than the reserve of
/// `free_space`.
const SPACE_CHECK_INTERVAL: u64 = 4 * 1024 * 1024;

/// Why a file was not stored or read.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    /// The file exceeds the size limit.
    #[error(
        "the file is larger than the limit of {0} bytes; the operator can raise it with `--max-file`"
    )]
    TooLarge(u64),
    /// The disk has no space for the file.
    #[error("the server has no space left for the file; try again later or contact the operator")]
    NoSpace,
    /// The account would exceed its quota.
    #[error(
        "your files use {used} of the {max} bytes of your quota; remove some or wait until they expire; \
         the operator can raise the quota with `--max-stored-files`"
    )]
    Quota {
        /// The bytes that the account uses.
        used: u64,
        /// The quota in bytes.
        max: u64,
    },
    /// The file could not be written.
    #[error("cannot write the file: {0}")]
    Io(io::Error),
    /// The blob could not be stored or read.
    #[error(transparent)]
    Blob(BlobError),
    /// The document could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FileStoreError {
    /// The message for clients. Details of the storage are for the operator only and are logged.
    pub(crate) fn client_message(&self) -> String {
        match self {
            Self::TooLarge(_) | Self::NoSpace | Self::Quota { .. } => self.to_string(),
            Self::Io(_) | Self::Blob(_) | Self::Store(_) => {
                tracing::error!(error = %chain(self), "failed to store or read file");
                "the server cannot store or read files at the moment".to_owned()
            }
        }
    }
}

impl From<io::Error> for FileStoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Io(error),
        }
    }
}

impl From<ReserveError> for FileStoreError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Quota { used, max } => Self::Quota { used, max },
            ReserveError::Store(error) => Self::Store(error),
        }
    }
}

impl From<BlobError> for FileStoreError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Full(_) => Self::NoSpace,
            BlobError::Missing | BlobError::Unavailable(_) => Self::Blob(error),
        }
    }
}

/// Writes an incoming file. If it is dropped before the file is stored, the partial file is
/// removed.
pub struct FileWriter {
    file: File,
    partial: PartialFile,
    limit: u64,
    size: u64,
    /// The size at which the free disk space is checked again.
    next_space_check: u64,
    sha256: digest::Context,
    md5: Md5,
}

/// A completely written file in the spool folder.
pub(super) struct WrittenFile {
    pub(super) partial: PartialFile,
    pub(super) size: u64,
    pub(super) sha256: String,
    pub(super) md5: String,
}

/// The path of a file in the spool folder. Dropping it removes the file if it is still there.
pub(super) struct PartialFile(PathBuf);

impl PartialFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // A stored file has been moved away.
        std::fs::remove_file(&self.0).ok();
    }
}

impl FileWriter {
    /// Creates the file. Checks the disk space for `expected` bytes; `write` accepts at most
    /// `limit`.
    pub(super) async fn begin(
        folder: &Path,
        expected: u64,
        limit: u64,
    ) -> Result<Self, FileStoreError> {
        let path = folder.join(format!("{:032x}{PART}", random::bits()));
        check_free_space(folder, expected)?;
        let file = tokio::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .await?;
        let (sha256, md5) = (digest::Context::new(&digest::SHA256), Md5::new());
        Ok(Self {
            file,
            partial: PartialFile(path),
            limit,
            size: 0,
            next_space_check: SPACE_CHECK_INTERVAL,
            sha256,
            md5,
        })
    }

    /// Writes the next bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FileStoreError> {
        self.size += bytes.len() as u64;
        if self.size > self.limit {
            return Err(FileStoreError::TooLarge(self.limit));
        }
        if self.size >= self.next_space_check {
            check_free_space(
                self.partial.path().parent().unwrap_or(Path::new(".")),
                SPACE_CHECK_INTERVAL,
            )?;
            self.next_space_check = self.size + SPACE_CHECK_INTERVAL;
        }
        self.sha256.update(bytes);
        self.md5.update(bytes);
        Ok(self.file.write_all(bytes).await?)
    }

    /// The bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the file and computes its digests.
    pub(super) async fn finish(mut self) -> Result<WrittenFile, FileStoreError> {
        self.file.flush().await?;
        Ok(WrittenFile {
            partial: self.partial,
            size: self.size,
            sha256: hex(self.sha256.finish().as_ref()),
            md5: hex(&self.md5.finalize()),
        })
    }
}

fn check_free_space(folder: &Path, bytes: u64) -> Result<(), FileStoreError> {
    match free_space(folder) {
        Some(free) if free < bytes.max(1) => {
            tracing::warn!(free, bytes, "refused file: no disk space");
            Err(FileStoreError::NoSpace)
        }
        Some(_) | None => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
