//! The port of the contents of files. Callers do not depend on the implementation (a folder, a
//! bucket).
//!
//! A blob is named by the digest of its content: the content under a name never changes, and
//! putting it a second time has no effect. Access control and retention are decided elsewhere.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// Why a blob could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// There is no blob with this name.
    #[error("the blob does not exist")]
    Missing,
    /// There is no space left.
    #[error("no space left for files: {0}")]
    Full(String),
    /// The storage cannot be reached or used now. A later attempt may succeed.
    #[error("the file storage is unavailable: {0}")]
    Unavailable(String),
}

/// Storage for the contents of files. Names consist of lower-case letters and digits.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores the content of a local file. The storage owns the file from then on and may move or
    /// delete it. Returns when the content will survive a crash of the machine. When the call
    /// fails, or its future is dropped before the end, either nothing or the whole content can be
    /// read under the name.
    async fn put(&self, name: &str, file: &Path) -> Result<(), BlobError>;

    /// Opens a range of a blob. The range must lie within the blob.
    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError>;

    /// Removes a blob. Succeeds if there is none.
    async fn remove(&self, name: &str) -> Result<(), BlobError>;

    /// The names of all blobs, in any order, including objects that other programs left in the
    /// storage.
    async fn names(&self) -> Result<Vec<String>, BlobError>;

    /// The names of the blobs that were put at least `age` ago.
    async fn names_older_than(&self, age: Duration) -> Result<Vec<String>, BlobError>;

    /// Removes a blob if it was put at least `age` ago. Succeeds if there is none.
    async fn remove_older_than(&self, name: &str, age: Duration) -> Result<(), BlobError>;
}

/// Whether this is the name of a blob, and not of a file that another program left in the storage: 64
/// hexadecimal digits.
pub fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The content of a blob, read in chunks.
#[async_trait]
pub trait BlobReader: Send {
    /// The next chunk; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError>;
}
