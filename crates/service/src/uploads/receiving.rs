//! A file on its way in: written under a name of its own, counted and digested as it comes.

use std::io;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};
use ring::digest;
use tidegate_core::store::StoreError;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::random;

/// Why a file was not kept.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// It has too many bytes.
    #[error("the file is larger than the {0} bytes that are allowed")]
    TooLarge(u64),
    /// It could not be written.
    #[error("the file could not be written: {0}")]
    Io(#[from] io::Error),
    /// It could not be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A file on its way in. Dropped before its end it leaves nothing.
pub struct Upload {
    file: File,
    place: Place,
    limit: u64,
    size: u64,
    sha256: digest::Context,
    md5: Md5,
}

/// A file that has come.
pub(super) struct Received {
    pub(super) place: Place,
    pub(super) size: u64,
    pub(super) sha256: String,
    pub(super) md5: String,
}

/// The name under which a file is written, until it gets its own.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn rename(mut self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.0, to)?;
        self.0 = PathBuf::new();
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            std::fs::remove_file(&self.0).ok();
        }
    }
}

impl Upload {
    pub(super) async fn begin(folder: &Path, limit: u64) -> Result<Self, UploadError> {
        let path = folder.join(format!("{:032x}.part", random::bits()));
        let file = tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).await?;
        let place = Place(path);
        Ok(Self { file, place, limit, size: 0, sha256: digest::Context::new(&digest::SHA256), md5: Md5::new() })
    }

    /// Takes the next bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.size += bytes.len() as u64;
        if self.size > self.limit {
            return Err(UploadError::TooLarge(self.limit));
        }
        self.sha256.update(bytes);
        self.md5.update(bytes);
        Ok(self.file.write_all(bytes).await?)
    }

    /// All is there, and stays when the machine goes down.
    pub(super) async fn end(mut self) -> Result<Received, UploadError> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(Received { place: self.place, size: self.size, sha256: hex(self.sha256.finish().as_ref()), md5: hex(&self.md5.finalize()) })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
