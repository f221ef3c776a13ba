//! The writer: the task that commits the changes of single jobs and messages.
//!
//! It takes all waiting changes, runs their statements in one transaction without waiting for the reply to
//! each, and commits; if each change is one statement, all of that is one round trip. It never waits for more changes: they queue up during a commit. Changes lock their
//! rows in one order, the same in all processes. If a change fails, the transaction is rolled back and the
//! changes are committed in smaller parts, so that it fails alone. If the connection is lost, all are
//! repeated: a change that was committed already must have no effect the second time. The writer has a
//! connection of its own, on which the statements of most jobs are prepared.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{BoxFuture, join, join_all, join3};
use tidegate_core::store::{StoreError, StoreMetrics};
use tidegate_core::{Account, JobId, chain};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::connection::{Connections, LentConnection, Retry, TransactionWork, within_limit};
use super::error::PgError;

/// How many changes can be queued; further callers wait.
const INBOX: usize = 1024;
/// The largest transaction, in changes and in bytes.
const MAX_BATCH: usize = 512;
const MAX_BATCH_BYTES: usize = 32 << 20;
/// The largest change: PostgreSQL limits a message to 1 GiB.
const MAX_CHANGE_BYTES: usize = 768 << 20;

/// The handle of the task, which ends when the handle is dropped. Callers wait for their own changes.
pub(super) struct ChangeWriter {
    inbox: mpsc::Sender<Box<dyn Change>>,
    _task: JoinSet<()>,
}

/// The row that a change locks first. The order of the variants is the order of the locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockOrder {
    /// A job.
    Job(Account, JobId),
    /// An outbox message.
    Message(String),
}

impl ChangeWriter {
    pub(super) fn start(connections: Connections, meter: Arc<StoreMetrics>) -> Self {
        let (inbox, rx) = mpsc::channel(INBOX);
        let task = WriterTask {
            connections,
            connection: None,
            has_pooler: false,
            rx,
            meter,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run());
        Self {
            inbox,
            _task: tasks,
        }
    }

    /// Runs `work` in a transaction and returns when it is durable. `bytes` is roughly how much it writes.
    pub(super) async fn change<A, T>(
        &self,
        order: LockOrder,
        bytes: usize,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.queue(order, bytes, arguments, (Steps::Several, work))
            .await
    }

    /// Like [`ChangeWriter::change`], for work whose first statement makes all of the changes. Others only read,
    /// and may run after the commit.
    pub(super) async fn change_in_one_step<A, T>(
        &self,
        order: LockOrder,
        bytes: usize,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.queue(order, bytes, arguments, (Steps::One, work))
            .await
    }

    async fn queue<A, T>(
        &self,
        order: LockOrder,
        bytes: usize,
        arguments: A,
        (steps, work): (Steps, TransactionWork<A, T>),
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        if bytes > MAX_CHANGE_BYTES {
            return Err(StoreError::Invalid(format!(
                "{bytes} bytes are more than PostgreSQL takes at once ({MAX_CHANGE_BYTES})"
            )));
        }
        let (tx, answer) = oneshot::channel();
        let change = PendingChange {
            order,
            bytes,
            queued_at: Instant::now(),
            arguments,
            steps,
            work,
            result: None,
            tx,
        };
        let stopped = || StoreError::Unavailable("the writer of the store has stopped".to_owned());
        self.inbox
            .send(Box::new(change))
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// How many statements of a change write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// The first, which is sent at once.
    One,
    /// Others too, which need the reply to the first.
    Several,
}

/// A queued change: the work, its result and the channel of its caller.
trait Change: Send {
    fn steps(&self) -> Steps;
    fn order(&self) -> &LockOrder;
    fn bytes(&self) -> usize;
    fn queued_at(&self) -> Instant;
    fn apply<'a>(&'a mut self, client: &'a LentConnection) -> BoxFuture<'a, Result<(), PgError>>;
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);
}

struct PendingChange<A, T> {
    order: LockOrder,
    bytes: usize,
    queued_at: Instant,
    arguments: A,
    steps: Steps,
    work: TransactionWork<A, T>,
    result: Option<T>,
    tx: oneshot::Sender<Result<T, StoreError>>,
}

impl<A: Send + Sync, T: Send> Change for PendingChange<A, T> {
    fn steps(&self) -> Steps {
        self.steps
    }

    fn order(&self) -> &LockOrder {
        &self.order
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn queued_at(&self) -> Instant {
        self.queued_at
    }

    fn apply<'a>(&'a mut self, client: &'a LentConnection) -> BoxFuture<'a, Result<(), PgError>> {
        let Self {
            arguments,
            work,
            result,
            ..
        } = self;
        let work = work(client, arguments);
        Box::pin(async move {
            *result = Some(work.await?);
            Ok(())
        })
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { result, tx, .. } = *self;
        let missing = || StoreError::Unavailable("the change has no result".to_owned());
        let answer = committed.and_then(|()| result.ok_or_else(missing));
        // The caller may have been dropped; the change is committed all the same.
        tx.send(answer).ok();
    }
}

struct WriterTask {
    connections: Connections,
    /// The connection of the last transaction.
    connection: Option<LentConnection>,
    /// Whether a pooler was seen that does not keep prepared statements.
    has_pooler: bool,
    rx: mpsc::Receiver<Box<dyn Change>>,
    meter: Arc<StoreMetrics>,
}

impl WriterTask {
    async fn run(mut self) {
        let mut batch = Vec::new();
        let mut retry = self.connections.retry();
        loop {
            if batch.is_empty() {
                match self.rx.recv().await {
                    Some(first) => batch.push(first),
                    None => return,
                }
                retry = self.connections.retry();
            }
            self.fill(&mut batch);
            batch = self.commit_batch(batch, &mut retry).await;
            self.prepare_repeated().await;
        }
    }

    /// Prepares the statements that are run often, after the callers have their replies.
    async fn prepare_repeated(&mut self) {
        let Some(connection) = &self.connection else {
            return;
        };
        let prepared = within_limit(connection.repeated().prepare(connection)).await;
        if let Err(error) = prepared {
            tracing::debug!(error = %chain(&error), "failed to prepare statements");
            // Whatever the reason is, it would be the same the next time.
            self.has_pooler |= matches!(error, PgError::Sql(_)) && !error.is_connection_loss();
            // Its transaction may be open.
            self.connection = None;
        }
    }

    /// Adds the changes that wait.
    fn fill(&mut self, batch: &mut Vec<Box<dyn Change>>) {
        let mut bytes: usize = batch.iter().map(|change| change.bytes()).sum();
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let Ok(change) = self.rx.try_recv() else {
                break;
            };
            bytes += change.bytes();
            batch.push(change);
        }
        // Stable: changes of one job stay in the order in which they were queued.
        batch.sort_by(|a, b| a.order().cmp(b.order()));
    }

    /// Commits the changes and replies. Returns those that must be repeated because the connection is
    /// lost, except changes that have waited too long.
    async fn commit_batch(
        &mut self,
        mut batch: Vec<Box<dyn Change>>,
        retry: &mut Retry,
    ) -> Vec<Box<dyn Change>> {
        match self.commit(&mut batch).await {
            Ok(()) => reply(batch, &Ok(())),
            Err(error) if error.is_connection_loss() => {
                let may_retry = retry.pause().await;
                let limit = self.connections.call_timeout();
                let (late, rest): (Vec<_>, Vec<_>) = batch
                    .into_iter()
                    .partition(|change| !may_retry || change.queued_at().elapsed() >= limit);
                if !late.is_empty() {
                    let error = StoreError::from(error);
                    tracing::warn!(%error, changes = late.len(), "failed to commit");
                    reply(late, &Err(error));
                }
                return rest;
            }
            // The database hangs, whatever the changes are.
            Err(error @ PgError::Timeout(_)) => {
                let error = StoreError::from(error);
                tracing::warn!(%error, changes = batch.len(), "failed to commit");
                reply(batch, &Err(error));
            }
            Err(_) => self.commit_in_parts(batch).await,
        }
        Vec::new()
    }

    /// One change of the batch failed: the others must not. Halves of the batch are committed until the
    /// change is alone.
    async fn commit_in_parts(&mut self, batch: Vec<Box<dyn Change>>) {
        let mut retry = self.connections.retry();
        let mut parts = halves(batch);
        while let Some(mut part) = parts.pop() {
            match self.commit(&mut part).await {
                Ok(()) => reply(part, &Ok(())),
                Err(error) => {
                    let is_temporary = error.is_conflict() || error.is_connection_loss();
                    if part.len() > 1 && !error.is_connection_loss() {
                        parts.extend(halves(part));
                    } else if is_temporary && retry.pause().await {
                        parts.push(part);
                    } else {
                        reply(part, &Err(error.into()));
                    }
                }
            }
        }
    }

    /// Applies the changes in one transaction and commits it. After an error nothing is committed, except
    /// if the connection was lost during the commit.
    async fn commit(&mut self, changes: &mut [Box<dyn Change>]) -> Result<(), PgError> {
        let began = Instant::now();
        let count = changes.len();
        let connection = self.connect().await?;
        let ended = within_limit(transact(&connection, changes)).await?;
        if let Err(error) = &ended {
            self.has_pooler |= error.is_of_pooler();
            if self.has_pooler {
                connection.repeated().disable();
            } else {
                // The changes are repeated, without prepared statements: one of them may be the cause.
                connection.repeated().forget();
            }
        }
        self.connection = Some(connection);
        let seconds = began.elapsed().as_secs_f64();
        self.meter.commit_seconds.observe(seconds);
        self.meter.commit_changes.observe(count as f64);
        ended
    }

    /// The connection of the last transaction, or a new one if that is lost.
    async fn connect(&mut self) -> Result<LentConnection, PgError> {
        if let Some(connection) = self.connection.take()
            && !connection.is_closed()
        {
            return Ok(connection);
        }
        let connection = self.connections.get().await?;
        if !self.has_pooler {
            connection.repeated().enable();
        }
        Ok(connection)
    }
}

/// Applies changes and commits them, or rolls them back if one of them fails: the inner result. After an outer
/// error, the connection cannot be used any more.
async fn transact(
    connection: &LentConnection,
    changes: &mut [Box<dyn Change>],
) -> Result<Result<(), PgError>, PgError> {
    let is_one_step = changes.iter().all(|change| change.steps() == Steps::One);
    let begin = connection.repeated().begin_changes();
    let begin = connection.batch_execute(&begin);
    let statements = join_all(changes.iter_mut().map(|change| change.apply(connection)));
    let (begun, applied, ended) = if is_one_step {
        // PostgreSQL rolls a transaction back in which a statement has failed.
        let commit = connection.batch_execute("COMMIT");
        let (begun, applied, committed) = join3(begin, statements, commit).await;
        (begun, applied, Some(committed))
    } else {
        let (begun, applied) = join(begin, statements).await;
        (begun, applied, None)
    };
    let errors = begun
        .err()
        .map(PgError::of_begin)
        .into_iter()
        .chain(applied.into_iter().filter_map(Result::err));
    let outcome = first_cause(errors);
    let ended = match (ended, &outcome) {
        (Some(ended), _) => ended,
        (None, Ok(())) => connection.batch_execute("COMMIT").await,
        (None, Err(_)) => connection.batch_execute("ROLLBACK").await,
    };
    match ended {
        Ok(()) => Ok(outcome),
        // The first error says more than the one of the rollback.
        Err(error) => Err(outcome.err().unwrap_or(PgError::Sql(error))),
    }
}

/// The two halves of a batch, the first one last.
fn halves(mut batch: Vec<Box<dyn Change>>) -> Vec<Vec<Box<dyn Change>>> {
    let second = batch.split_off(batch.len().div_ceil(2));
    [second, batch]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect()
}

/// The error that made the others fail, if there is one.
fn first_cause(errors: impl Iterator<Item = PgError>) -> Result<(), PgError> {
    let mut first = None;
    for error in errors {
        if error.is_connection_loss() {
            return Err(error);
        }
        if !error.is_consequence() || first.is_none() {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(()), Err)
}

fn reply(batch: Vec<Box<dyn Change>>, outcome: &Result<(), StoreError>) {
    for change in batch {
        change.reply(outcome.clone());
    }
}
