//! Bytes in a folder: one file each. What is put is moved in, so it must come from the same file system.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tokio::io::{AsyncReadExt, AsyncSeekExt, Take};

/// What is read in one go.
const PIECE: usize = 256 * 1024;

/// A folder with the bytes of files.
pub struct FolderBlobs(PathBuf);

impl FolderBlobs {
    /// Makes the folder if it is not there; nobody else can look into it then.
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
            // The name must outlive the machine as well.
            File::open(folder)?.sync_all()
        });
        moved
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(fault)
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError> {
        let mut file = tokio::fs::File::open(self.0.join(name))
            .await
            .map_err(fault)?;
        file.set_max_buf_size(PIECE);
        file.seek(SeekFrom::Start(range.start))
            .await
            .map_err(fault)?;
        Ok(Box::new(FolderBlobReader(
            file.take(range.end.saturating_sub(range.start)),
        )))
    }

    async fn remove(&self, name: &str) -> Result<(), BlobError> {
        match tokio::fs::remove_file(self.0.join(name)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fault(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn names(&self) -> Result<Vec<String>, BlobError> {
        let mut entries = tokio::fs::read_dir(&self.0).await.map_err(fault)?;
        let mut names = Vec::new();
        while let Some(entry) = entries.next_entry().await.map_err(fault)? {
            // What has another kind of name was not made by us.
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }
}

struct FolderBlobReader(Take<tokio::fs::File>);

#[async_trait]
impl BlobReader for FolderBlobReader {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        let left = self.0.limit();
        if left == 0 {
            return Ok(None);
        }
        let mut piece =
            BytesMut::with_capacity(usize::try_from(left).map_or(PIECE, |left| left.min(PIECE)));
        match self.0.read_buf(&mut piece).await {
            Ok(0) => Err(BlobError::Unavailable(
                "the file is shorter than it was".to_owned(),
            )),
            Ok(_) => Ok(Some(piece.freeze())),
            Err(error) => Err(fault(error)),
        }
    }
}

fn fault(error: io::Error) -> BlobError {
    match error.kind() {
        ErrorKind::NotFound => BlobError::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => BlobError::Full(error.to_string()),
        _ => BlobError::Unavailable(error.to_string()),
    }
}
