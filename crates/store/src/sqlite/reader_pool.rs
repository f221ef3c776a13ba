//! The reader pool: threads with a read-only connection each.
//!
//! They are not tokio's blocking threads: those may all be busy with slow files, and reading a job
//! must stay fast.

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use rusqlite::Connection;
use tidegate_core::store::StoreError;
use tokio::sync::{Semaphore, oneshot};

use super::error::DbError;

/// How many reads can be queued; further callers wait for a permit.
const INBOX: usize = 256;

type ReadTask = Box<dyn FnOnce(&mut Connection) + Send>;

/// The handle of the threads. Dropping it waits for running reads and for the end of the threads.
pub(super) struct ReaderPool {
    inbox: Option<Sender<ReadTask>>,
    permits: Semaphore,
    threads: Vec<JoinHandle<()>>,
}

impl ReaderPool {
    pub(super) fn start(connections: Vec<Connection>) -> io::Result<Self> {
        let (inbox, rx) = crossbeam_channel::unbounded();
        let mut readers = Self {
            inbox: Some(inbox),
            permits: Semaphore::new(INBOX),
            threads: Vec::new(),
        };
        for conn in connections {
            let rx = rx.clone();
            let thread = std::thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || run_tasks(&rx, conn))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs `work` on a consistent snapshot of the latest state.
    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, DbError> + Send + 'static,
    {
        let _permit = self.permits.acquire().await.map_err(|_| stopped())?;
        let (tx, answer) = oneshot::channel();
        let task: ReadTask = Box::new(move |conn| {
            if !tx.is_closed() {
                // The caller may have been dropped meanwhile.
                tx.send(in_snapshot(conn, work)).ok();
            }
        });
        self.inbox
            .as_ref()
            .ok_or_else(stopped)?
            .send(task)
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.inbox = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed already.
            thread.join().ok();
        }
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the reader threads have stopped; restart the server".to_owned())
}

fn run_tasks(rx: &Receiver<ReadTask>, mut conn: Connection) {
    for task in rx {
        task(&mut conn);
    }
}

fn in_snapshot<T>(
    conn: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T, DbError>,
) -> Result<T, StoreError> {
    let snapshot = conn.transaction().map_err(DbError::from)?;
    Ok(work(&snapshot)?)
}
