//! Copies files to the storage of other processes, which share an index in their database.

use std::path::Path;

use bytes::Bytes;
use tidegate_core::blobs::{BlobError, Blobs};
use tidegate_core::file_index::StoredFile;
use tidegate_core::{Account, JobId};

use super::placeholder_key::PlaceholderKey;
use super::{FileStore, FileStoreError, FileWriter, output_urls};

/// Why the content of a file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum ContentCopyError {
    /// The content is missing, cannot be read or is not the one that was stored.
    #[error("failed to read the content of the file")]
    Source(#[source] FileStoreError),
    /// The other storage failed.
    #[error("failed to store the content of the file")]
    Target(#[source] FileStoreError),
}

impl FileStore {
    /// Copies the content of a file to other blobs, unless they have it. It is written to `spool` first,
    /// from where the other blobs take it.
    pub async fn copy_content(
        &self,
        file: &StoredFile,
        blobs: &dyn Blobs,
        spool: &Path,
    ) -> Result<(), ContentCopyError> {
        match blobs.read(&file.sha256, 0..0).await {
            Ok(_) => return Ok(()),
            Err(BlobError::Missing) => {}
            Err(error) => return Err(ContentCopyError::Target(error.into())),
        }
        let begun = FileWriter::begin(spool, file.size, file.size).await;
        let mut writer = begun.map_err(ContentCopyError::Target)?;
        let read = |error: BlobError| ContentCopyError::Source(error.into());
        let mut content = self.read(&file.sha256, 0..file.size).await.map_err(read)?;
        while let Some(bytes) = content.next().await.map_err(read)? {
            let written = writer.write(&bytes).await;
            written.map_err(ContentCopyError::Target)?;
        }
        let written = writer.finish().await.map_err(ContentCopyError::Target)?;
        if written.sha256 != file.sha256 {
            let damaged = std::io::Error::other("the content is damaged: its digest is different");
            return Err(ContentCopyError::Source(FileStoreError::Io(damaged)));
        }
        let put = blobs.put(&written.sha256, written.partial.path()).await;
        put.map_err(|error| ContentCopyError::Target(error.into()))
    }

    /// The JSON of an output with sealed placeholders, for processes that have the same secret.
    pub fn seal_placeholders(
        &self,
        secret: &[u8],
        account: &Account,
        job: &JobId,
        json: &Bytes,
    ) -> Bytes {
        let key = PlaceholderKey::new(secret);
        self.replace_placeholders(account, job, json, |file| {
            output_urls::sealed(&key, account, job, file)
        })
    }
}
