//! A file on its way in: written under a name of its own, counted and digested as it comes.

use std::io;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use ring::digest;
use tidegate_core::blobs::BlobError;
use tidegate_core::chain;
use tidegate_core::store::StoreError;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::files::free_space;
use crate::random;

/// What such a file is called until it has come.
pub(super) const PART: &str = ".part";
/// After so many bytes is looked again whether there is room for more. Less than what is always left alone.
const SPACE_CHECK_INTERVAL: u64 = 4 * 1024 * 1024;

/// Why a file was not kept.
#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    /// It has too many bytes.
    #[error("the file is larger than the {0} bytes that are allowed")]
    TooLarge(u64),
    /// The disk would be full, or is.
    #[error("the server has no space left for the file; try again later, or tell who runs it")]
    NoSpace,
    /// The account has left too much.
    #[error(
        "your files have {used} of the {max} bytes that an account may have here; remove some, or wait until they are too old"
    )]
    Quota {
        /// What it has.
        used: u64,
        /// What it may have.
        max: u64,
    },
    /// It could not be written.
    #[error("the file could not be written: {0}")]
    Io(io::Error),
    /// Its bytes could not be kept.
    #[error(transparent)]
    Blob(BlobError),
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FileStoreError {
    /// What a caller is told: where files are kept and what is wrong there is the operator's business, and is logged.
    pub(crate) fn client_message(&self) -> String {
        match self {
            Self::TooLarge(_) | Self::NoSpace | Self::Quota { .. } => self.to_string(),
            Self::Io(_) | Self::Blob(_) | Self::Store(_) => {
                tracing::error!(error = %chain(self), "a file could not be kept or read");
                "the server cannot keep or read files at the mark".to_owned()
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

impl From<BlobError> for FileStoreError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Full(_) => Self::NoSpace,
            BlobError::Missing | BlobError::Unavailable(_) => Self::Blob(error),
        }
    }
}

/// A file on its way in. Dropped before it is kept it leaves nothing.
pub struct FileWriter {
    file: File,
    partial: PartialFile,
    limit: u64,
    size: u64,
    /// When the size is this, is looked for room again.
    next_space_check: u64,
    sha256: digest::Context,
    md5: Md5,
}

/// A file that has come.
pub(super) struct WrittenFile {
    pub(super) partial: PartialFile,
    pub(super) size: u64,
    pub(super) sha256: String,
    pub(super) md5: String,
}

/// The name under which a file is written; what is still there in the end is removed.
pub(super) struct PartialFile(PathBuf);

impl PartialFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Nearly always it was moved away.
        std::fs::remove_file(&self.0).ok();
    }
}

impl FileWriter {
    /// Begins to take in a file of `expected` bytes or, if more come, of at most `limit`.
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

    /// Takes the next bytes.
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

    /// How many bytes have come.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// All is there.
    pub(super) async fn end(mut self) -> Result<WrittenFile, FileStoreError> {
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
        Some(room) if room < bytes.max(1) => {
            tracing::warn!(room, bytes, "no space for a file: it was not taken");
            Err(FileStoreError::NoSpace)
        }
        Some(_) | None => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
