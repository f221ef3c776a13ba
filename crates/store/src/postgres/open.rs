//! Opens the store, with the errors that can occur.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::PoolError;
use tidegate_core::chain;
use tidegate_core::store::{StoreError, StoreMetrics};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connection::{Connections, within_limit};
use super::server_lock::ServerLock;
use super::tls::{self, TlsSetupError};
use super::url::PostgresUrl;
use super::writer::ChangeWriter;
use super::{PostgresStore, outbox, schema};

/// The earliest version of PostgreSQL that works: 13.
const MIN_VERSION: i32 = 130_000;

/// Options of the store. The defaults are right for a server.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The maximum number of connections for reads; one more commits the changes.
    pub connections: usize,
    /// The longest time of a call, which is repeated while the connection is lost. After that the store is
    /// unavailable to its caller.
    pub call_timeout: Duration,
    /// Whether other processes may use the database at the same time.
    pub database_use: DatabaseUse,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            call_timeout: Duration::from_secs(20),
            database_use: DatabaseUse::Alone,
        }
    }
}

/// Whether other processes may use the database at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseUse {
    /// One process at a time can open the database.
    Alone,
    /// Many processes can, and each job is leased by [`tidegate_core::leases::Leases`].
    Shared,
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The server does not answer now: it is not started, starts, or is a standby.
    #[error("PostgreSQL does not answer: {0}")]
    Unreachable(String),
    /// The password is wrong or missing.
    #[error("PostgreSQL refuses the password of `{user}`: {reason}; check the URL")]
    Password {
        /// The role.
        user: String,
        /// What PostgreSQL reported.
        reason: String,
    },
    /// The role may not connect.
    #[error("PostgreSQL does not let `{user}` connect: {reason}; check the role and `pg_hba.conf`")]
    NotAllowed {
        /// The role.
        user: String,
        /// What PostgreSQL reported.
        reason: String,
    },
    /// There is no such database.
    #[error(
        "there is no database `{database}`; create it (`createdb {database}`) or correct the URL"
    )]
    UnknownDatabase {
        /// The name of the database.
        database: String,
    },
    /// The role may connect, and may not create or use the tables.
    #[error(
        "the role `{user}` lacks a privilege: {reason}; make it the owner of the database, or of an empty schema `tidegate`"
    )]
    Privilege {
        /// The role.
        user: String,
        /// What PostgreSQL reported.
        reason: String,
    },
    /// No encrypted connection can be made.
    #[error("no encrypted connection: {0}; see `sslmode` in the URL")]
    Tls(String),
    /// The version of PostgreSQL is too old.
    #[error("PostgreSQL {found} is too old; use version 13 or later")]
    Version {
        /// Its version.
        found: String,
    },
    /// The database does not store Unicode.
    #[error("the encoding of the database is {found}; create it with `ENCODING 'UTF8'`")]
    Encoding {
        /// Its encoding.
        found: String,
    },
    /// A newer version of tidegate has migrated the database.
    #[error(
        "the database has the layout {found}, this tidegate knows up to {known}; use a newer tidegate"
    )]
    Newer {
        /// The version of its layout.
        found: i32,
        /// The latest layout that this program knows.
        known: i32,
    },
    /// The schema belongs to another program.
    #[error(
        "the schema `tidegate` of the database has tables of another program; use another database"
    )]
    Foreign,
    /// A migration failed.
    #[error("cannot migrate the database from layout {from} to {}; it is unchanged", from + 1)]
    Migration {
        /// The layout before the migration.
        from: i32,
        /// The error of PostgreSQL.
        source: tokio_postgres::Error,
    },
    /// Another server uses the database.
    #[error("the database is in use by another server ({owner}); stop it or use another database")]
    InUse {
        /// The other server, as far as PostgreSQL tells.
        owner: String,
    },
    /// PostgreSQL reported another error.
    #[error("PostgreSQL reported an error")]
    Database(#[from] tokio_postgres::Error),
    /// Encryption cannot be set up.
    #[error(transparent)]
    TlsSetup(#[from] TlsSetupError),
}

impl PostgresOpenError {
    /// Whether a later attempt may succeed without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }

    /// The reason for an error of a connection.
    pub(super) fn connecting(url: &PostgresUrl, error: tokio_postgres::Error) -> Self {
        let (user, reason) = (url.user().to_owned(), chain(&error).to_string());
        let Some(code) = error.code() else {
            return if reason.contains("password missing") {
                Self::Password { user, reason }
            } else if reason.starts_with("error performing TLS handshake") {
                Self::Tls(reason)
            } else if reason.starts_with("invalid configuration") {
                Self::Database(error)
            } else {
                Self::Unreachable(reason)
            };
        };
        let reason = error
            .as_db_error()
            .map_or(reason, |error| error.message().to_owned());
        match code {
            code if *code == SqlState::INVALID_PASSWORD => Self::Password { user, reason },
            code if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                Self::NotAllowed { user, reason }
            }
            code if *code == SqlState::INVALID_CATALOG_NAME => Self::UnknownDatabase {
                database: url.database().to_owned(),
            },
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::Privilege { user, reason },
            // Starting, stopping, out of connections or memory; a connection that broke.
            code if ["08", "53", "57"].contains(&&code.code()[..2]) => Self::Unreachable(reason),
            _ => Self::Database(error),
        }
    }
}

impl PostgresStore {
    /// Opens the store in this database, and creates its tables if necessary. One attempt: see
    /// [`PostgresOpenError::is_temporary`].
    pub async fn open(
        url: &PostgresUrl,
        options: &PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        let tls = tls::connector(url.tls())?;
        let connections = Connections::new(url, &tls, options.connections, options.call_timeout);
        let prepared = prepare(&connections).await;
        prepared.map_err(|error| match error {
            PostgresOpenError::Database(error) => PostgresOpenError::connecting(url, error),
            other => other,
        })?;
        let lock = match options.database_use {
            DatabaseUse::Alone => Some(ServerLock::take(url, &tls).await?),
            DatabaseUse::Shared => None,
        };
        let meter = Arc::new(StoreMetrics::default());
        let writer = ChangeWriter::start(
            Connections::new(url, &tls, 1, options.call_timeout),
            Arc::clone(&meter),
        );
        let store = Self {
            connections,
            writer,
            lock,
            meter,
            location: url.to_string(),
        };
        if store.lock.is_some()
            && let Err(error) = store.release_claims().await
        {
            tracing::warn!(%error, "failed to end the claims of the previous process, they end by themselves");
        }
        Ok(store)
    }

    /// Whether the server waits for a standby before it confirms a commit.
    pub async fn has_synchronous_standby(&self) -> Result<bool, StoreError> {
        const STANDBY: &str = "SELECT current_setting('synchronous_standby_names') <> ''";
        self.connections
            .read((), |client, ()| {
                Box::pin(async move { Ok(client.query_typed_one(STANDBY, &[]).await?.try_get(0)?) })
            })
            .await
    }

    async fn release_claims(&self) -> Result<(), StoreError> {
        self.connections
            .change((), |client, ()| Box::pin(outbox::release_all(client)))
            .await
    }
}

/// Checks the server and migrates the database.
async fn prepare(connections: &Connections) -> Result<(), PostgresOpenError> {
    let connection = match connections.connect().await {
        Ok(connection) => connection,
        Err(PoolError::Backend(error)) => return Err(PostgresOpenError::Database(error)),
        Err(other) => return Err(PostgresOpenError::Unreachable(other.to_string())),
    };
    within_limit(async { Ok(check_server(&connection).await) })
        .await
        .map_err(|error| PostgresOpenError::Unreachable(error.to_string()))??;
    schema::migrate(&connection, schema::STEPS).await?;
    connection.give_back();
    Ok(())
}

async fn check_server(client: &Client) -> Result<(), PostgresOpenError> {
    let row = client
        .query_typed_one(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
                    current_setting('server_encoding'), pg_is_in_recovery()",
            &[],
        )
        .await?;
    let (version, found, encoding): (i32, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if version < MIN_VERSION {
        return Err(PostgresOpenError::Version { found });
    }
    if encoding != "UTF8" {
        return Err(PostgresOpenError::Encoding { found: encoding });
    }
    if row.try_get(3)? {
        return Err(PostgresOpenError::Unreachable(
            "the server is a standby; give the address of the primary".to_owned(),
        ));
    }
    Ok(())
}
