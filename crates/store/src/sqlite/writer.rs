//! The writer: the one thread that changes the database.
//!
//! It takes all that waits, does it in one transaction, commits with one sync, and answers. It never waits for
//! more to come: while one commit is on its way to the disk, the next ones gather in the inbox. A change that
//! cannot be done fails alone; a commit that cannot be done fails all that was in it, and the next one is tried
//! as if nothing had been.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use rusqlite::Connection;
use tidegate_core::store::{StoreError, StoreMeter};
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpointer;
use super::data_dir::LockedDataDir;
use super::error::DbError;

/// How many changes wait in the inbox. When it is full, callers wait for a place.
const INBOX: usize = 1024;
/// The largest transaction: in changes, and in bytes.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 32 << 20;
/// From this many pages in the log on (4 MiB), the checkpointer is called after a commit.
const TIDY_PAGES: usize = 1024;
/// From this many on (16 MiB) the checkpointer, which works beside us, cannot keep up; we stop for a moment.
const LOG_PAGES: usize = 4096;

/// The handle. Dropping it waits for what was given, and for the end of the thread.
pub(super) struct Writer {
    inbox: Option<mpsc::Sender<Box<dyn Change>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        conn: Connection,
        log_pages: Arc<AtomicUsize>,
        checkpointer: Checkpointer,
        folder: LockedDataDir,
        meter: Arc<StoreMeter>,
    ) -> io::Result<Self> {
        let (inbox, rx) = mpsc::channel(INBOX);
        let writer_thread = WriterThread {
            conn,
            log_pages,
            rx,
            checkpointer,
            meter,
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                writer_thread.run();
                drop(folder); // Only now may another server have it.
            })?;
        Ok(Self {
            inbox: Some(inbox),
            thread: Some(thread),
        })
    }

    /// Does `work` in a transaction; returns when it is on the disk. `work` may be called again when the
    /// transaction that it was part of did not succeed. `bytes` is about how much it writes.
    pub(super) async fn change<T, F>(&self, bytes: usize, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, DbError> + Send + 'static,
    {
        let (tx, answer) = oneshot::channel();
        let change = PendingChange {
            work,
            bytes,
            result: None,
            tx,
        };
        let inbox = self.inbox.as_ref().ok_or_else(gone)?;
        inbox.send(Box::new(change)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already; nobody is left to be told.
            thread.join().ok();
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("its writer has stopped; restart the server".to_owned())
}

/// A change on its way: work, its result, and who wants to know.
trait Change: Send {
    fn bytes(&self) -> usize;
    fn apply(&mut self, conn: &Connection) -> Result<(), StoreError>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct PendingChange<T, F> {
    work: F,
    bytes: usize,
    result: Option<T>,
    tx: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&Connection) -> Result<T, DbError> + Send> Change for PendingChange<T, F> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&mut self, conn: &Connection) -> Result<(), StoreError> {
        self.result = Some((self.work)(conn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { result, tx, .. } = *self;
        let answer = committed.and_then(|()| result.ok_or_else(gone));
        // The caller may have gone away; what it change for is done all the same.
        tx.send(answer).ok();
    }
}

struct WriterThread {
    // Dropped before the connection: the last one to be closed empties the log.
    checkpointer: Checkpointer,
    conn: Connection,
    log_pages: Arc<AtomicUsize>,
    rx: mpsc::Receiver<Box<dyn Change>>,
    meter: Arc<StoreMeter>,
}

impl WriterThread {
    fn run(mut self) {
        while let Some(first) = self.rx.blocking_recv() {
            let batch = self.gather(first);
            self.serve(batch);
            self.keep_log_short();
        }
    }

    fn gather(&mut self, first: Box<dyn Change>) -> Vec<Box<dyn Change>> {
        let mut bytes = first.bytes();
        let mut batch = vec![first];
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Ok(change) = self.rx.try_recv() else {
                break;
            };
            bytes += change.bytes();
            batch.push(change);
        }
        batch
    }

    fn serve(&mut self, mut batch: Vec<Box<dyn Change>>) {
        let began = Instant::now();
        let committed = self.commit(&mut batch);
        self.meter
            .commit_seconds
            .observe(began.elapsed().as_secs_f64());
        self.meter.commit_changes.observe(batch.len() as f64);
        let outcomes = match committed {
            Ok(outcomes) => outcomes,
            Err(StoreError::Full(_)) => self.squeeze(&mut batch),
            Err(error) => {
                tracing::warn!(%error, changes = batch.len(), "the store could not commit");
                vec![Err(error); batch.len()]
            }
        };
        for (change, outcome) in batch.into_iter().zip(outcomes) {
            change.answer(outcome);
        }
    }

    /// Commits what still finds room: the log may be the one that takes it, and the end of a job is small and
    /// must not fail because a large input came with it.
    fn squeeze(&self, batch: &mut [Box<dyn Change>]) -> Vec<Result<(), StoreError>> {
        tracing::warn!("the disk of the store is full");
        self.checkpointer.empty(&self.conn);
        batch
            .iter_mut()
            .map(|change| self.commit_alone(change))
            .collect()
    }

    fn commit_alone(&self, change: &mut Box<dyn Change>) -> Result<(), StoreError> {
        self.commit(std::slice::from_mut(change))?
            .pop()
            .unwrap_or(Ok(()))
    }

    /// All of these in one transaction; what became of each, or why none of them came true.
    fn commit(
        &self,
        changes: &mut [Box<dyn Change>],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.say("BEGIN IMMEDIATE")?;
        let outcomes = changes
            .iter_mut()
            .map(|change| self.apply(change.as_mut()))
            .collect::<Result<_, _>>();
        let committed = outcomes.and_then(|outcomes| self.say("COMMIT").map(|()| outcomes));
        if committed.is_err() && !self.conn.is_autocommit() {
            // If this fails as well, the next `BEGIN` says so.
            self.say("ROLLBACK").ok();
        }
        committed
    }

    /// One change, undone alone if it fails. The outer error means that the whole transaction is lost.
    fn apply(&self, change: &mut dyn Change) -> Result<Result<(), StoreError>, StoreError> {
        self.say("SAVEPOINT one")?;
        let outcome = change.apply(&self.conn);
        match &outcome {
            Ok(()) => {}
            // SQLite gives up the transaction by itself when the disk fails in the middle of it.
            Err(error) if self.conn.is_autocommit() => return Err(error.clone()),
            Err(_) => self.say("ROLLBACK TO one")?,
        }
        self.say("RELEASE one")?;
        Ok(outcome)
    }

    fn say(&self, sql: &str) -> Result<(), StoreError> {
        let done = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]));
        done.map(drop).map_err(|error| DbError::from(error).into())
    }

    /// Mostly the checkpointer does it while we go on; but as long as we add to the log it cannot begin anew, so when it has become long we do the last bit ourselves.
    fn keep_log_short(&self) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages >= LOG_PAGES {
            self.checkpointer.tidy(&self.conn);
        } else if pages >= TIDY_PAGES {
            self.checkpointer.poke();
        }
    }
}
