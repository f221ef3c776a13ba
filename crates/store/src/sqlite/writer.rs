//! The writer: the only thread that changes the database.
//!
//! It takes all queued changes, applies them in one transaction, commits with one sync, and
//! replies. It never waits for more changes: they queue up during a commit. A change that fails is
//! rolled back alone. A commit that fails fails all of its changes; the next commit is independent
//! of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use rusqlite::Connection;
use tidegate_core::store::{StoreError, StoreMetrics};
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpointer;
use super::data_dir::LockedDataDir;
use super::error::DbError;

/// How many changes can be queued; further callers wait.
const INBOX: usize = 1024;
/// The largest transaction, in changes and in bytes.
const MAX_BATCH: usize = 512;
const MAX_BATCH_BYTES: usize = 32 << 20;
/// From this many pages in the log (4 MiB), the writer asks for a checkpoint after a commit.
const CHECKPOINT_PAGES: usize = 1024;
/// From this many pages (16 MiB), the checkpointer cannot keep up, and the writer runs a checkpoint
/// itself.
const MAX_LOG_PAGES: usize = 4096;

/// The handle of the thread. Dropping it waits for queued changes and for the end of the thread.
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
        meter: Arc<StoreMetrics>,
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
                drop(folder); // Releases the lock for the next server.
            })?;
        Ok(Self {
            inbox: Some(inbox),
            thread: Some(thread),
        })
    }

    /// Runs `work` in a transaction and returns when it is durable. `work` may be called again if
    /// its transaction fails. `bytes` is roughly how much it writes.
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
        let inbox = self.inbox.as_ref().ok_or_else(stopped)?;
        inbox.send(Box::new(change)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            thread.join().ok();
        }
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the writer thread has stopped; restart the server".to_owned())
}

/// A queued change: the work, its result and the channel of its caller.
trait Change: Send {
    fn bytes(&self) -> usize;
    fn apply(&mut self, conn: &Connection) -> Result<(), StoreError>;
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
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

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { result, tx, .. } = *self;
        let answer = committed.and_then(|()| result.ok_or_else(stopped));
        // The caller may have been dropped; the change is committed all the same.
        tx.send(answer).ok();
    }
}

struct WriterThread {
    // Dropped before `conn`: the last connection to close truncates the log.
    checkpointer: Checkpointer,
    conn: Connection,
    log_pages: Arc<AtomicUsize>,
    rx: mpsc::Receiver<Box<dyn Change>>,
    meter: Arc<StoreMetrics>,
}

impl WriterThread {
    fn run(mut self) {
        while let Some(first) = self.rx.blocking_recv() {
            let batch = self.collect_batch(first);
            self.commit_batch(batch);
            self.limit_log();
        }
    }

    fn collect_batch(&mut self, first: Box<dyn Change>) -> Vec<Box<dyn Change>> {
        let mut bytes = first.bytes();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let Ok(change) = self.rx.try_recv() else {
                break;
            };
            bytes += change.bytes();
            batch.push(change);
        }
        batch
    }

    fn commit_batch(&mut self, mut batch: Vec<Box<dyn Change>>) {
        let began = Instant::now();
        let committed = self.commit(&mut batch);
        self.meter
            .commit_seconds
            .observe(began.elapsed().as_secs_f64());
        self.meter.commit_changes.observe(batch.len() as f64);
        let outcomes = match committed {
            Ok(outcomes) => outcomes,
            Err(StoreError::Full(_)) => self.commit_one_by_one(&mut batch),
            Err(error) => {
                tracing::warn!(%error, changes = batch.len(), "failed to commit");
                vec![Err(error); batch.len()]
            }
        };
        for (change, outcome) in batch.into_iter().zip(outcomes) {
            change.reply(outcome);
        }
    }

    /// Commits the changes one by one when the disk is full, after truncating the log: the end of a
    /// job is small and must not fail because of a large input in the same batch.
    fn commit_one_by_one(&self, batch: &mut [Box<dyn Change>]) -> Vec<Result<(), StoreError>> {
        tracing::warn!("disk is full");
        self.checkpointer.truncate_log(&self.conn);
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

    /// Applies the changes in one transaction. Returns the result of each, or the error that rolled
    /// back all of them.
    fn commit(
        &self,
        changes: &mut [Box<dyn Change>],
    ) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.execute("BEGIN IMMEDIATE")?;
        let outcomes = changes
            .iter_mut()
            .map(|change| self.apply(change.as_mut()))
            .collect::<Result<_, _>>();
        let committed = outcomes.and_then(|outcomes| self.execute("COMMIT").map(|()| outcomes));
        if committed.is_err() && !self.conn.is_autocommit() {
            // If this fails too, the next `BEGIN` reports it.
            self.execute("ROLLBACK").ok();
        }
        committed
    }

    /// Applies one change in a savepoint. The outer error means that the whole transaction is
    /// rolled back.
    fn apply(&self, change: &mut dyn Change) -> Result<Result<(), StoreError>, StoreError> {
        self.execute("SAVEPOINT one")?;
        let outcome = change.apply(&self.conn);
        match &outcome {
            Ok(()) => {}
            // SQLite rolls back the transaction by itself if the disk fails during it.
            Err(error) if self.conn.is_autocommit() => return Err(error.clone()),
            Err(_) => self.execute("ROLLBACK TO one")?,
        }
        self.execute("RELEASE one")?;
        Ok(outcome)
    }

    fn execute(&self, sql: &str) -> Result<(), StoreError> {
        let done = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]));
        done.map(drop).map_err(|error| DbError::from(error).into())
    }

    /// Usually the checkpointer moves the pages concurrently. But the log cannot restart while the
    /// writer appends to it, so the writer checkpoints a long log itself.
    fn limit_log(&self) {
        let pages = self.log_pages.load(Ordering::Relaxed);
        if pages >= MAX_LOG_PAGES {
            self.checkpointer.run_passive(&self.conn);
        } else if pages >= CHECKPOINT_PAGES {
            self.checkpointer.request();
        }
    }
}
