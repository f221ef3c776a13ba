//! The checkpointer: a thread that moves committed pages from the write-ahead log into the database
//! while the writer continues.
//!
//! It runs passive checkpoints, which never block: pages that are in use stay in the log until the
//! next checkpoint. Only if the log has become long does the writer run a checkpoint itself.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tidegate_core::chain;

const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// The handle of the thread. Dropping it waits for the end of the thread.
pub(super) struct Checkpointer {
    requests: Option<SyncSender<()>>,
    /// Held during a checkpoint: SQLite does not wait for another running checkpoint, but returns
    /// without doing anything.
    running: Arc<Mutex<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(conn: Connection) -> io::Result<Self> {
        let (tx, requests) = sync_channel(1);
        let running = Arc::new(Mutex::new(()));
        let own_running = Arc::clone(&running);
        let work = move || {
            requests
                .iter()
                .for_each(|()| checkpoint(&conn, &own_running, PASSIVE))
        };
        let thread = std::thread::Builder::new()
            .name("store-checkpointer".to_owned())
            .spawn(work)?;
        Ok(Self {
            requests: Some(tx),
            running,
            thread: Some(thread),
        })
    }

    /// Asks the thread for a checkpoint.
    pub(super) fn request(&self) {
        if let Some(requests) = &self.requests {
            // Full: a checkpoint is requested already.
            requests.try_send(()).ok();
        }
    }

    /// Runs a passive checkpoint on the caller's connection.
    pub(super) fn run_passive(&self, conn: &Connection) {
        checkpoint(conn, &self.running, PASSIVE);
    }

    /// Moves all pages and truncates the log, for a full disk. Waits for readers.
    pub(super) fn truncate_log(&self, conn: &Connection) {
        checkpoint(conn, &self.running, "PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            thread.join().ok();
        }
    }
}

/// A failed checkpoint loses nothing: the pages stay in the log.
fn checkpoint(conn: &Connection, running: &Mutex<()>, sql: &str) {
    let _guard = running.lock().unwrap_or_else(PoisonError::into_inner);
    match conn.query_row(sql, [], |row| row.get::<_, i64>(2)) {
        Ok(pages) => tracing::trace!(pages, "checkpointed log"),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "failed to checkpoint log")
        }
    }
}
