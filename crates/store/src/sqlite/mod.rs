//! The store in a folder of this machine, with SQLite.
//!
//! Three kinds of threads, each with its own connection: one *writer* that commits all that waits in one
//! transaction with one sync, a few *readers* that never wait for the writer, and a *checkpointer* that moves what
//! was committed from the log (`-wal`) into the database while the others go on.
//!
//! ```text
//!   caller ──change──► writer ──commit, sync──► tidegate.db-wal ──checkpointer──► tidegate.db
//!   caller ──read────► readers ◄───────────────────────┴────────────────────────┘
//! ```

mod checkpoint;
mod columns;
mod cursor;
mod data_dir;
mod documents;
mod error;
mod jobs;
mod list;
mod open;
mod outbox;
mod port;
mod reader_pool;
mod rows;
mod schema;
mod summaries;
mod writer;

#[cfg(test)]
mod tests;

pub use open::{SqliteOptions, StoreOpenError};

use std::sync::Arc;

use reader_pool::ReaderPool;
use tidegate_core::store::StoreMeter;
use writer::Writer;

/// The store in one folder of this machine. One process at a time has it.
///
/// Dropping it waits until all that was given to it is committed, and then frees the folder.
pub struct SqliteStore {
    // The order matters: the writer is the last to close its connection, which empties the log, and then
    // gives the lock of the folder back.
    readers: ReaderPool,
    writer: Writer,
    meter: Arc<StoreMeter>,
}

impl SqliteStore {
    /// What is counted while the store works.
    pub fn meter(&self) -> Arc<StoreMeter> {
        Arc::clone(&self.meter)
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
