//! The port for the stored input files of a process without a file store.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

/// Why a stored file was not downloaded.
#[derive(Debug, thiserror::Error)]
pub enum InputDownloadError {
    /// This machine has no space for it.
    #[error("no space left on the device")]
    DiskFull,
    /// Any other reason: a message for the client.
    #[error("{0}")]
    Failed(String),
}

/// Downloads the stored files that the input of one job names.
#[async_trait]
pub trait InputDownloads: Send + Sync {
    /// Downloads the stored file with this id into the folder; returns its path, or `None` if the account
    /// of the job has no such file.
    async fn download(
        &self,
        id: &str,
        folder: &Path,
    ) -> Result<Option<PathBuf>, InputDownloadError>;
}
