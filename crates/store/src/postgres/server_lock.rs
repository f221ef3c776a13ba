//! The lock of a server that uses the database alone: an advisory lock, which lasts as long as its
//! connection. After a connection loss the lock is taken again; another server may have been faster.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::{Client, Config};

use super::connection::{open_connection, with_defaults};
use super::open::PostgresOpenError;
use super::tls::TlsConnector;
use super::url::PostgresUrl;

/// The key of the lock: `tide` and a number.
macro_rules! key {
    () => {
        "7595715428164239363"
    };
}
/// The keepalives let PostgreSQL notice that the machine of a server is gone.
const SETTINGS: [&str; 2] = [
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3",
    "SET idle_session_timeout = 0",
];
const TRY_LOCK: &str = concat!("SELECT pg_try_advisory_lock(", key!(), ")");
/// Who has the lock.
const OWNER: &str = concat!(
    "SELECT coalesce(host(a.client_addr), 'a local process'), a.application_name
     FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted
       AND ((l.classid::bigint << 32) | l.objid::bigint) = ",
    key!(),
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
);
/// How long the connection of a server that was killed may still exist.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// The lock. Dropping it closes its connection.
pub(super) struct ServerLock {
    _task: JoinSet<()>,
    replaced: watch::Receiver<bool>,
}

impl ServerLock {
    /// Takes the lock. Waits a few seconds for the end of the connection of a server that was killed.
    pub(super) async fn take(
        url: &PostgresUrl,
        tls: &TlsConnector,
    ) -> Result<Self, PostgresOpenError> {
        let config = with_defaults(url);
        let connecting = |error| PostgresOpenError::connecting(url, error);
        let locked = LockConnection::open(&config, tls)
            .await
            .map_err(connecting)?;
        if !locked.lock().await.map_err(connecting)? {
            let owner = locked.owner().await;
            return Err(PostgresOpenError::InUse { owner });
        }
        let (tx, replaced) = watch::channel(false);
        let tls = tls.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            keep(locked, &config, &tls).await;
            // Fails if the store is dropped: then no caller waits for it.
            tx.send(true).ok();
        });
        Ok(Self {
            _task: tasks,
            replaced,
        })
    }

    /// Waits until another server has the lock.
    pub(super) async fn until_replaced(&self) {
        let mut replaced = self.replaced.clone();
        if replaced.wait_for(|replaced| *replaced).await.is_err() {
            // The task has ended without a result, which only happens at the end of the process.
            std::future::pending::<()>().await;
        }
    }
}

/// Takes the lock again whenever its connection is lost. Returns when another server has it.
async fn keep(mut locked: LockConnection, config: &Config, tls: &TlsConnector) {
    loop {
        locked.until_closed().await;
        tracing::warn!("lost the connection to PostgreSQL that holds the lock of the server");
        locked = loop {
            match lock_again(config, tls).await {
                Some(LockResult::Locked(locked)) => break locked,
                Some(LockResult::HeldByAnother(owner)) => {
                    tracing::error!(owner, "another server uses the database");
                    return;
                }
                None => tokio::time::sleep(LOCK_PAUSE).await,
            }
        };
        tracing::info!("connected to PostgreSQL again");
    }
}

enum LockResult {
    Locked(LockConnection),
    HeldByAnother(String),
}

/// `None` if the database does not answer.
async fn lock_again(config: &Config, tls: &TlsConnector) -> Option<LockResult> {
    let connection = LockConnection::open(config, tls).await.ok()?;
    if connection.lock().await.ok()? {
        return Some(LockResult::Locked(connection));
    }
    Some(LockResult::HeldByAnother(connection.owner().await))
}

/// A connection outside of the pool.
struct LockConnection {
    client: Client,
    task: JoinHandle<()>,
}

impl LockConnection {
    async fn open(config: &Config, tls: &TlsConnector) -> Result<Self, tokio_postgres::Error> {
        let (client, task) = open_connection(config, tls).await?;
        // Not all servers know all settings, and none is essential.
        for settings in SETTINGS {
            client.batch_execute(settings).await.ok();
        }
        Ok(Self { client, task })
    }

    /// Takes the lock; `false` if another server has it. PostgreSQL may not have noticed yet that the
    /// connection of a server that was killed is gone.
    async fn lock(&self) -> Result<bool, tokio_postgres::Error> {
        for _ in 0..LOCK_TRIES {
            if self
                .client
                .query_typed_one(TRY_LOCK, &[])
                .await?
                .try_get(0)?
            {
                return Ok(true);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        Ok(false)
    }

    async fn owner(&self) -> String {
        let row = self.client.query_typed_opt(OWNER, &[]).await;
        let owner = row.ok().flatten().and_then(|row| {
            let (address, name): (String, String) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            Some(format!("`{name}` of {address}"))
        });
        owner.unwrap_or_else(|| "unknown".to_owned())
    }

    async fn until_closed(&mut self) {
        // A panic of the task has been printed already.
        (&mut self.task).await.ok();
    }
}

impl Drop for LockConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
