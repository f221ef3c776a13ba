//! Errors of PostgreSQL and of the stored data, and their mapping to `StoreError`.

use std::time::Duration;

use deadpool_postgres::PoolError;
use tidegate_core::chain;
use tidegate_core::store::StoreError;
use tokio_postgres::error::SqlState;

use crate::columns::ColumnError;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PgError {
    /// PostgreSQL reported an error, or the connection is lost.
    #[error(transparent)]
    Sql(#[from] tokio_postgres::Error),
    /// There is no connection.
    #[error("{0}")]
    NoConnection(String),
    /// There was no reply in this time.
    #[error("no reply within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A row has a value that this program never writes.
    #[error("{0}")]
    Corrupt(String),
    /// The given value cannot be stored.
    #[error("{0}")]
    Invalid(String),
    /// Statements that were prepared in one session were run in another one.
    #[error("a pooler of connections does not keep prepared statements")]
    OtherSession,
}

impl From<PoolError> for PgError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::NoConnection(chain(&error).to_string()),
            PoolError::Timeout(_) => {
                Self::NoConnection("no connection was free or could be opened in time".to_owned())
            }
            other => Self::NoConnection(other.to_string()),
        }
    }
}

impl From<ColumnError> for PgError {
    fn from(error: ColumnError) -> Self {
        match error {
            ColumnError::Corrupt(text) => Self::Corrupt(text),
            ColumnError::Invalid(text) => Self::Invalid(text),
        }
    }
}

impl PgError {
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Sql(error) => error.code(),
            _ => None,
        }
    }

    /// The connection cannot be used any more, or there is none.
    pub(super) fn is_connection_loss(&self) -> bool {
        match self {
            Self::NoConnection(_) => true,
            Self::Sql(error) => match error.code() {
                Some(code) => {
                    code.code().starts_with("08")
                        || [
                            SqlState::ADMIN_SHUTDOWN,
                            SqlState::CRASH_SHUTDOWN,
                            SqlState::CANNOT_CONNECT_NOW,
                            // A former primary after a failover; the next connection finds the new one.
                            SqlState::READ_ONLY_SQL_TRANSACTION,
                        ]
                        .contains(code)
                }
                None => error.is_closed() || (is_io(error) && !is_too_large(error)),
            },
            _ => false,
        }
    }

    /// The transaction conflicted with another one and can be repeated.
    pub(super) fn is_conflict(&self) -> bool {
        self.state().is_some_and(|code| {
            [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code)
        })
    }

    /// A pooler of connections lost a prepared statement, or has one of another process.
    pub(super) fn is_of_pooler(&self) -> bool {
        match self {
            Self::OtherSession => true,
            _ => self.state().is_some_and(|code| {
                [
                    SqlState::INVALID_SQL_STATEMENT_NAME,
                    SqlState::DUPLICATE_PSTATEMENT,
                ]
                .contains(code)
            }),
        }
    }

    /// An earlier statement of the transaction failed.
    pub(super) fn is_consequence(&self) -> bool {
        self.state() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }
}

/// Whether a value does not fit into a message of the protocol.
fn is_too_large(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("error encoding") || text.starts_with("error serializing")
}

/// Whether the socket failed.
fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

impl From<PgError> for StoreError {
    fn from(error: PgError) -> Self {
        match error {
            PgError::Sql(error) => store_error(&error),
            PgError::NoConnection(_) | PgError::Timeout(_) | PgError::OtherSession => {
                Self::Unavailable(format!("PostgreSQL: {error}"))
            }
            PgError::Corrupt(text) => Self::Corrupt(text),
            PgError::Invalid(text) => Self::Invalid(text),
        }
    }
}

fn store_error(error: &tokio_postgres::Error) -> StoreError {
    let text = format!("PostgreSQL: {}", chain(error));
    let Some(code) = error.code() else {
        return if error.to_string().starts_with("error deserializing") {
            StoreError::Corrupt(text)
        } else if is_too_large(error) {
            StoreError::Invalid(text)
        } else {
            StoreError::Unavailable(text)
        };
    };
    match &code.code()[..2] {
        _ if *code == SqlState::DISK_FULL => {
            StoreError::Full("free space on the disk of PostgreSQL".to_owned())
        }
        // A value that is too large or invalid, a violated constraint, a limit of the program.
        "22" | "23" | "54" => StoreError::Invalid(text),
        _ if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            StoreError::Corrupt(format!(
                "{text}; the database is damaged, restore it from a backup"
            ))
        }
        _ => StoreError::Unavailable(text),
    }
}
