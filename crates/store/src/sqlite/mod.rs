//! The store in a local folder, with SQLite.
//!
//! Three kinds of threads, each with its own connection: one *writer* that commits all queued changes
//! in one transaction with one sync, a pool of *readers* that never wait for the writer, and a
//! *checkpointer* that moves committed pages from the log (`-wal`) into the database.
//!
//! ```text
//!   caller ──change──► writer ──commit, sync──► tidegate.db-wal ──checkpointer──► tidegate.db
//!   caller ──read────► readers ◄───────────────────────┴─────────────────────────────┘
//! ```

mod attempts;
mod checkpoint;
mod data_dir;
mod documents;
mod error;
mod export;
mod jobs;
mod lease_markers;
mod leases;
mod list;
mod open;
mod outbox;
mod outbox_take;
mod port;
mod reader_pool;
mod rows;
mod schema;
mod summaries;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use data_dir::mark_migrated;
pub use open::{SqliteOptions, StoreOpenError};

use std::sync::Arc;

use jiff::Timestamp;
use lease_markers::LeaseMarkers;
use reader_pool::ReaderPool;
use tidegate_core::store::StoreMetrics;
use writer::Writer;

/// The store in one local folder, which one process at a time can open.
///
/// Dropping it waits until all queued changes are committed, and then releases the folder.
pub struct SqliteStore {
    // The order matters: the writer closes the last connection, which truncates the log, and then
    // releases the lock of the folder.
    readers: ReaderPool,
    /// For leases alone: a job must not wait for lists and scans before it starts.
    lease_reader: ReaderPool,
    writer: Writer,
    markers: Arc<LeaseMarkers>,
    /// What ran before is over: one process at a time has the folder.
    opened_at: Timestamp,
    meter: Arc<StoreMetrics>,
}

impl SqliteStore {
    /// The store's metrics.
    pub fn meter(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.meter)
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
