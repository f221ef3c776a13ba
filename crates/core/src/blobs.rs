//! The port of the bytes of files. What is behind it (a folder, a bucket) is no business of callers.
//!
//! Bytes are kept under a name that says what they are, their digest: what has a name never changes, and
//! putting it a second time does no harm. Who may see them and when they go is decided elsewhere.

use std::ops::Range;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;

/// Why bytes could not be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// There are none under this name.
    #[error("the bytes are not there")]
    Missing,
    /// There is no room left.
    #[error("there is no room left for files: {0}")]
    Full(String),
    /// The place cannot be reached or used now; later it may.
    #[error("the place where files are kept cannot be used now: {0}")]
    Unavailable(String),
}

/// Where the bytes of files are kept. Names are made of small letters and digits.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Keeps the bytes of a local file. It belongs to the place from then on and may be gone. Comes back when
    /// the bytes survive a crash of the machine. When it fails, or is dropped before its end, nothing can be
    /// read under the name, or all of it.
    async fn put(&self, name: &str, file: &Path) -> Result<(), BlobError>;

    /// Opens some of the bytes. The range lies within what is kept.
    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError>;

    /// Removes the bytes; if there are none, that is good as well.
    async fn remove(&self, name: &str) -> Result<(), BlobError>;

    /// Every name under which something is kept, in any order; also what others have left in the place.
    async fn names(&self) -> Result<Vec<String>, BlobError>;
}

/// Bytes on their way out.
#[async_trait]
pub trait BlobReader: Send {
    /// The next of them; `None` when all have come.
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError>;
}
