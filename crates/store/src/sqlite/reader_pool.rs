//! The readers: a few threads with a connection each that answer questions.
//!
//! They are not tokio's threads for blocking work: those may all be busy with slow files, and to look at a job
//! must stay quick then.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tidegate_core::store::StoreError;
use tokio::sync::{Semaphore, oneshot};

use super::error::DbError;

/// How many questions wait at most; more wait outside.
const INBOX: usize = 256;

type ReadTask = Box<dyn FnOnce(&mut Connection) + Send>;

/// The handle. Dropping it waits for the answers that are being made, and for the end of the threads.
pub(super) struct ReaderPool {
    inbox: Option<mpsc::Sender<ReadTask>>,
    places: Semaphore,
    threads: Vec<JoinHandle<()>>,
}

impl ReaderPool {
    pub(super) fn start(connections: Vec<Connection>) -> io::Result<Self> {
        let (inbox, rx) = mpsc::channel();
        let rx = Arc::new(Mutex::new(rx));
        let mut readers = Self {
            inbox: Some(inbox),
            places: Semaphore::new(INBOX),
            threads: Vec::new(),
        };
        for conn in connections {
            let rx = Arc::clone(&rx);
            let thread = std::thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || answer_all(&rx, conn))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Answers from one state of the database, the newest.
    pub(super) async fn ask<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, DbError> + Send + 'static,
    {
        let _place = self.places.acquire().await.map_err(|_| gone())?;
        let (tx, answer) = oneshot::channel();
        let task: ReadTask = Box::new(move |conn| {
            if !tx.is_closed() {
                // The caller may go away meanwhile.
                tx.send(in_one_state(conn, work)).ok();
            }
        });
        self.inbox
            .as_ref()
            .ok_or_else(gone)?
            .send(task)
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.inbox = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread was printed already; nobody is left to be told.
            thread.join().ok();
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("its readers have stopped; restart the server".to_owned())
}

fn answer_all(rx: &Mutex<mpsc::Receiver<ReadTask>>, mut conn: Connection) {
    loop {
        // One thread waits for the next task, the others wait for the lock: which of them it is does not matter.
        let task = rx.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match task {
            Ok(task) => task(&mut conn),
            Err(mpsc::RecvError) => return,
        }
    }
}

fn in_one_state<T>(
    conn: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T, DbError>,
) -> Result<T, StoreError> {
    let state = conn.transaction().map_err(DbError::from)?;
    Ok(work(&state)?)
}
