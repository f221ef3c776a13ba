//! The port for the output files of a process without a file store.

use std::fs::File;

use async_trait::async_trait;

/// An output file that is being uploaded.
#[derive(Debug, Clone, Copy)]
pub struct OutputUpload<'a> {
    /// The open file.
    pub file: &'a File,
    /// Its size in bytes.
    pub size: u64,
    /// Its name.
    pub name: &'a str,
    /// Its media type.
    pub mime: &'a str,
}

/// Takes the output files of one job, in place of a file store.
#[async_trait]
pub trait OutputUploads: Send + Sync {
    /// Stores a file; returns its address in the output, or `None` if there is no place for files: then
    /// the output contains the file itself. The error is a message for the client.
    async fn upload(&self, upload: OutputUpload<'_>) -> Result<Option<String>, String>;
}
