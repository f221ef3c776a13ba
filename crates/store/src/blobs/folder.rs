//! Blobs in a folder, one file each. `put` renames the file, so it must be on the same file system.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, ErrorKind, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tokio::io::{AsyncReadExt, AsyncSeekExt, Take};

/// How many bytes are read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Blobs in a local folder.
pub struct FolderBlobs(PathBuf);

impl FolderBlobs {
    /// Creates the folder if necessary, readable by this user only.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        Ok(Self(folder))
    }
}

#[async_trait]
impl Blobs for FolderBlobs {
    async fn put(&self, name: &str, file: &Path) -> Result<(), BlobError> {
        let (folder, name, file) = (self.0.clone(), name.to_owned(), file.to_owned());
        let moved = tokio::task::spawn_blocking(move || {
            File::open(&file)?.sync_all()?;
            std::fs::rename(&file, folder.join(name))?;
            // The new directory entry must survive a crash too.
            File::open(folder)?.sync_all()
        });
        moved
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(blob_error)
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError> {
        let mut file = tokio::fs::File::open(self.0.join(name))
            .await
            .map_err(blob_error)?;
        file.set_max_buf_size(CHUNK_BYTES);
        file.seek(SeekFrom::Start(range.start))
            .await
            .map_err(blob_error)?;
        Ok(Box::new(FolderBlobReader(
            file.take(range.end.saturating_sub(range.start)),
        )))
    }

    async fn remove(&self, name: &str) -> Result<(), BlobError> {
        match tokio::fs::remove_file(self.0.join(name)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(blob_error(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn names(&self) -> Result<Vec<String>, BlobError> {
        let mut entries = tokio::fs::read_dir(&self.0).await.map_err(blob_error)?;
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(blob_error)? {
            // Blob names are UTF-8; other files were not created by this backend.
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    async fn names_older_than(&self, age: Duration) -> Result<Vec<String>, BlobError> {
        let folder = self.0.clone();
        let listed = tokio::task::spawn_blocking(move || {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                // It may be removed at the same time.
                let is_old = entry.metadata().is_ok_and(|file| is_older_than(&file, age));
                if is_old {
                    names.extend(entry.file_name().into_string());
                }
            }
            Ok(names)
        });
        listed
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(blob_error)
    }

    async fn remove_older_than(&self, name: &str, age: Duration) -> Result<(), BlobError> {
        let path = self.0.join(name);
        // The time is read again: the same content may have been put a moment ago.
        match tokio::fs::metadata(&path).await {
            Ok(file) if is_older_than(&file, age) => self.remove(name).await,
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(blob_error(error)),
        }
    }
}

/// Whether a file was written at least `age` ago. `put` moves a new file over an existing blob.
fn is_older_than(file: &Metadata, age: Duration) -> bool {
    file.modified()
        .is_ok_and(|at| at.elapsed().is_ok_and(|since| since >= age))
}

struct FolderBlobReader(Take<tokio::fs::File>);

#[async_trait]
impl BlobReader for FolderBlobReader {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        let left = self.0.limit();
        if left == 0 {
            return Ok(None);
        }
        let mut chunk = BytesMut::with_capacity(
            usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES)),
        );
        match self.0.read_buf(&mut chunk).await {
            Ok(0) => Err(BlobError::Unavailable(
                "the file has become shorter".to_owned(),
            )),
            Ok(_) => Ok(Some(chunk.freeze())),
            Err(error) => Err(blob_error(error)),
        }
    }
}

fn blob_error(error: io::Error) -> BlobError {
    match error.kind() {
        ErrorKind::NotFound => BlobError::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BlobError::Full(error.to_string()),
        _ => BlobError::Unavailable(error.to_string()),
    }
}
