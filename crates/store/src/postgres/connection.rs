//! Connections: a pool with limits, and the transactions that run on them.
//!
//! Every transaction has a time limit in the database and one in this process. A connection whose
//! transaction did not end in order is closed, not used again.

use std::ops::Deref;
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod,
    Runtime,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use tidegate_core::chain;
use tidegate_core::store::StoreError;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};

use super::error::PgError;
use super::repeated::RepeatedStatements;
use super::tls::TlsConnector;
use super::url::PostgresUrl;

/// How long one transaction may take. The limit of a statement in the database is shorter, so that the
/// database ends it first.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);
/// How long to wait for a connection of the pool, and for a new one.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without traffic, the system checks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The pause before a transaction is repeated after the connection was lost; it doubles up to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The lock that changes hold shared, and `open` alone: numbers become visible in another order than they
/// are assigned in. The key is `tide` and a number.
macro_rules! changes_lock {
    () => {
        "7595715428164239361"
    };
}

/// Begins a transaction that changes something. PostgreSQL ends the transaction of a process that is stopped
/// in the middle of it: others wait for its locks.
pub(super) const BEGIN_CHANGES: &str = concat!(
    "BEGIN; SET LOCAL statement_timeout = '12s'; SET LOCAL idle_in_transaction_session_timeout = '12s';
     SELECT pg_advisory_xact_lock_shared(",
    changes_lock!(),
    ")"
);
/// Begins a transaction that sees all changes with numbers that were assigned before.
const BEGIN_AFTER_CHANGES: &str = concat!(
    "BEGIN; SET LOCAL statement_timeout = '12s'; SET LOCAL idle_in_transaction_session_timeout = '12s';
     SELECT pg_advisory_xact_lock(",
    changes_lock!(),
    ")"
);
/// Begins a transaction that reads one state of the database.
const BEGIN_READ: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '12s'";

/// A single statement sees one state of the database by itself.
const NO_TRANSACTION: &str = "";

/// The statements of a transaction. The first is sent without waiting for a reply to those before it.
pub(super) type TransactionWork<A, T> =
    for<'a> fn(&'a LentConnection, &'a A) -> BoxFuture<'a, Result<T, PgError>>;

/// The pool of connections.
#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    /// The longest time of a call, which is repeated while the connection is lost.
    call_timeout: Duration,
}

impl Connections {
    /// A pool of at most `size` connections. None is opened yet.
    pub(super) fn new(
        url: &PostgresUrl,
        tls: &TlsConnector,
        size: usize,
        call_timeout: Duration,
    ) -> Self {
        let config = with_defaults(url);
        let connect = Connector { tls: tls.clone() };
        let manager = Manager::from_connect(
            config,
            connect,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let pool = Pool::builder(manager)
            .max_size(size.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .create_timeout(Some(WAIT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            // Without it, the pool would log every connection that the server has closed.
            .pre_recycle(Hook::sync_fn(|client, _| {
                if client.is_closed() {
                    return Err(HookError::message("closed"));
                }
                Ok(())
            }))
            .build()
            .expect("a pool with a runtime can have timeouts");
        Self { pool, call_timeout }
    }

    /// How long a call is repeated while the connection is lost.
    pub(super) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// The tries of one call.
    pub(super) fn retry(&self) -> Retry {
        Retry {
            began: Instant::now(),
            limit: self.call_timeout,
            pause: FIRST_PAUSE,
        }
    }

    /// A connection. It is closed when it is dropped, unless it was given back in order.
    pub(super) async fn connect(&self) -> Result<LentConnection, PoolError> {
        Ok(LentConnection {
            object: Some(self.pool.get().await?),
            repeated: RepeatedStatements::default(),
        })
    }

    /// Like [`Connections::connect`], with the error of a call.
    pub(super) async fn get(&self) -> Result<LentConnection, PgError> {
        Ok(self.connect().await?)
    }

    /// Runs the only statement of `work`, which reads. It is repeated if the connection is lost.
    pub(super) async fn read_once<A: Sync, T>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        self.run(NO_TRANSACTION, Repeat::Always, &arguments, work)
            .await
    }

    /// Runs `work` on one state of the database. It is repeated if the connection is lost.
    pub(super) async fn read<A: Sync, T>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        self.run(BEGIN_READ, Repeat::Always, &arguments, work).await
    }

    /// Runs `work` in a transaction of its own. It is repeated if the connection is lost, also if it may
    /// have been committed already: the second run must have no other effect.
    pub(super) async fn change<A: Sync, T>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        self.run(BEGIN_CHANGES, Repeat::Always, &arguments, work)
            .await
    }

    /// Like [`Connections::change`], for work that must not be committed twice.
    pub(super) async fn change_once<A: Sync, T>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        self.run(BEGIN_CHANGES, Repeat::UntilCommit, &arguments, work)
            .await
    }

    /// Runs `work` after all changes that are in progress.
    pub(super) async fn read_after_changes<A: Sync, T>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        self.run(BEGIN_AFTER_CHANGES, Repeat::Always, &arguments, work)
            .await
    }

    async fn run<A: Sync, T>(
        &self,
        begin: &str,
        repeat: Repeat,
        arguments: &A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        let limit = self.call_timeout;
        // A database that hangs would take the limits of the pool and of the transaction one after the other.
        let run = self.run_repeated(begin, repeat, arguments, work);
        tokio::time::timeout(limit, run)
            .await
            .unwrap_or_else(|_| Err(PgError::Timeout(limit).into()))
    }

    async fn run_repeated<A: Sync, T>(
        &self,
        begin: &str,
        repeat: Repeat,
        arguments: &A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        let mut retry = self.retry();
        loop {
            let mut may_be_committed = false;
            let error = match self
                .run_once(begin, arguments, work, &mut may_be_committed)
                .await
            {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let is_temporary = error.is_connection_loss() || error.is_conflict();
            let is_repeatable = repeat == Repeat::Always || !may_be_committed;
            if !is_temporary || !is_repeatable || !retry.pause().await {
                return Err(error.into());
            }
        }
    }

    async fn run_once<A: Sync, T>(
        &self,
        begin: &str,
        arguments: &A,
        work: TransactionWork<A, T>,
        may_be_committed: &mut bool,
    ) -> Result<T, PgError> {
        let connection = self.get().await?;
        let result = within_limit(async {
            if begin == NO_TRANSACTION {
                return work(&connection, arguments).await;
            }
            let statements = work(&connection, arguments);
            let (begun, result) = join(connection.batch_execute(begin), statements).await;
            begun?;
            let result = result?;
            *may_be_committed = true;
            commit(&connection, begin == BEGIN_READ).await?;
            Ok(result)
        })
        .await?;
        connection.give_back();
        Ok(result)
    }
}

/// When a transaction may be repeated after the connection was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Always.
    Always,
    /// Only if it cannot have been committed.
    UntilCommit,
}

/// The configuration of a URL, with our defaults for what the URL does not say.
pub(super) fn with_defaults(url: &PostgresUrl) -> Config {
    let mut config = url.config().clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("tidegate");
    }
    // A connection to a machine that is gone must not look alive for hours.
    config
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE)
        .keepalives_retries(3);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TRANSACTION_TIMEOUT);
    }
    config
}

/// Commits a transaction. One that has only read is not waited for.
async fn commit(client: &Client, has_only_read: bool) -> Result<(), PgError> {
    let mut commit = Box::pin(client.batch_execute("COMMIT"));
    match (&mut commit).now_or_never() {
        Some(committed) => Ok(committed?),
        None if has_only_read => Ok(()),
        None => Ok(commit.await?),
    }
}

/// Runs the work of one transaction within its time limit.
pub(super) async fn within_limit<T>(
    work: impl Future<Output = Result<T, PgError>>,
) -> Result<T, PgError> {
    tokio::time::timeout(TRANSACTION_TIMEOUT, work)
        .await
        .unwrap_or(Err(PgError::Timeout(TRANSACTION_TIMEOUT)))
}

/// A connection of the pool.
pub(super) struct LentConnection {
    object: Option<Object>,
    repeated: RepeatedStatements,
}

impl Deref for LentConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.object
            .as_ref()
            .expect("a connection has a client until it is given back")
    }
}

impl LentConnection {
    /// The statements that this user of the connection runs often.
    pub(super) fn repeated(&self) -> &RepeatedStatements {
        &self.repeated
    }

    /// Gives the connection back to the pool. No transaction may be open.
    pub(super) fn give_back(mut self) {
        self.object = None;
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            // Its transaction may be open: closing the connection rolls it back.
            drop(Object::take(object));
        }
    }
}

/// Repeats a call for a limited time, with growing pauses.
pub(super) struct Retry {
    began: Instant,
    limit: Duration,
    pause: Duration,
}

impl Retry {
    /// Waits before the next try; `false` if there is no time for another one.
    pub(super) async fn pause(&mut self) -> bool {
        if self.began.elapsed() + self.pause >= self.limit {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

/// Opens connections. The task of a connection ends with its client.
struct Connector {
    tls: TlsConnector,
}

type ConnectFuture<'a> = BoxFuture<'a, Result<(Client, JoinHandle<()>), tokio_postgres::Error>>;

impl Connect for Connector {
    fn connect(&self, config: &Config) -> ConnectFuture<'_> {
        let config = config.clone();
        Box::pin(async move { open_connection(&config, &self.tls).await })
    }
}

/// Opens a connection outside of a pool. The task ends when the connection does.
#[expect(
    clippy::disallowed_methods,
    reason = "the task ends with the client, and the pool wants its handle"
)]
pub(super) async fn open_connection(
    config: &Config,
    tls: &TlsConnector,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = config.connect(tls.clone()).await?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %chain(&error), "lost the connection to PostgreSQL");
        }
    });
    Ok((client, task))
}
