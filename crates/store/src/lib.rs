//! The storage backends: job records, outbox messages and documents in SQLite or PostgreSQL, and the
//! bytes of files in a folder or in S3.
//!
//! They implement the ports `tidegate_core::store::{Store, Documents}`,
//! `tidegate_core::leases::Leases` (PostgreSQL) and `tidegate_core::blobs::Blobs`. Only the binary knows which backend it opened. Queueing, access
//! and retention are decided elsewhere: a store returns from a write only after it is durable.

mod attempts;
mod blobs;
mod columns;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod cursor;
mod memory;
mod migration;
mod postgres;
mod records;
mod sqlite;

pub use blobs::{FolderBlobs, InvalidBucket, S3Blobs};
pub use memory::MemoryDocuments;
pub use migration::{
    BegunMigration, ContentCopy, DataFolderMigration, FileTransfer, MigrationError, MigrationMark,
    MigrationReport, SourceCounts,
};
pub use postgres::{
    DatabaseUse, EndpointOwner, InvalidPostgresUrl, OwnedEndpointStore, OwnerClaim,
    PostgresOpenError, PostgresOptions, PostgresStore, PostgresUrl, TlsSetupError,
};
pub use sqlite::{SqliteOptions, SqliteStore, StoreOpenError};
