//! The checkpointer: moves what was committed from the log into the database, beside the writer.
//!
//! It waits for nobody and nobody waits for it (SQLite calls this a passive checkpoint): what somebody still
//! reads or writes stays in the log until the next time. Only a writer whose log has become long waits for its turn.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tidegate_core::chain;

const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// The handle. Dropping it waits for the end of the thread.
pub(super) struct Checkpointer {
    poke: Option<SyncSender<()>>,
    /// Whose turn it is: SQLite does not wait for somebody who tidies already, it does nothing then.
    turn: Arc<Mutex<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(conn: Connection) -> io::Result<Self> {
        let (poke, pokes) = sync_channel(1);
        let turn = Arc::new(Mutex::new(()));
        let own_turn = Arc::clone(&turn);
        let work = move || {
            pokes
                .iter()
                .for_each(|()| checkpoint(&conn, &own_turn, PASSIVE))
        };
        let thread = std::thread::Builder::new()
            .name("store-checkpointer".to_owned())
            .spawn(work)?;
        Ok(Self {
            poke: Some(poke),
            turn,
            thread: Some(thread),
        })
    }

    /// There is something to tidy.
    pub(super) fn poke(&self) {
        if let Some(poke) = &self.poke {
            // Full: it will come by anyway.
            poke.try_send(()).ok();
        }
    }

    /// Moves what can be moved now, by the connection of the caller, which waits for it.
    pub(super) fn tidy(&self, conn: &Connection) {
        checkpoint(conn, &self.turn, PASSIVE);
    }

    /// Moves everything and gives the room of the log back, for when the disk is full. Waits for those who read.
    pub(super) fn empty(&self, conn: &Connection) {
        checkpoint(conn, &self.turn, "PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.poke = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already; nobody is left to be told.
            thread.join().ok();
        }
    }
}

/// Failing is no loss: it all stays in the log.
fn checkpoint(conn: &Connection, turn: &Mutex<()>, sql: &str) {
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    match conn.query_row(sql, [], |row| row.get::<_, i64>(2)) {
        Ok(pages) => tracing::trace!(pages, "log of the store tidied"),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the log of the store could not be tidied and grows")
        }
    }
}
