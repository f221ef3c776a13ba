//! What tidegate keeps: records of jobs, the letters about them, small documents, and the bytes of files.
//!
//! The ports are `tidegate_core::store::{Store, Documents}` and `tidegate_core::blobs::Blobs`; here is what
//! stands behind them. Only the binary knows which backend it opened. Who is next, who may see what, and when
//! something is removed is decided elsewhere: a store only writes down, and says truthfully when it has.

mod blobs;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod memory;
mod sqlite;

pub use blobs::{FolderBlobs, InvalidBucket, S3Blobs};
pub use memory::MemoryDocuments;
pub use sqlite::{SqliteOptions, SqliteStore, StoreOpenError};
