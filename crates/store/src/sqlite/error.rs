//! Errors of SQLite and of the stored data, and their mapping to `StoreError`.

use rusqlite::{ErrorCode, ffi};
use tidegate_core::store::StoreError;

use crate::columns::ColumnError;

/// Why an operation on a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DbError {
    /// SQLite said no.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The file of lease markers cannot be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A row has a value that this program never writes.
    #[error("{0}")]
    Corrupt(String),
    /// The given value cannot be stored.
    #[error("{0}")]
    Invalid(String),
}

impl From<ColumnError> for DbError {
    fn from(error: ColumnError) -> Self {
        match error {
            ColumnError::Corrupt(text) => Self::Corrupt(text),
            ColumnError::Invalid(text) => Self::Invalid(text),
        }
    }
}

impl DbError {
    /// Whether a row cannot be read, while others can.
    pub(super) fn is_corrupt_row(&self) -> bool {
        use rusqlite::Error::{FromSqlConversionFailure, InvalidColumnType};
        matches!(
            self,
            Self::Corrupt(_) | Self::Sql(FromSqlConversionFailure(..) | InvalidColumnType(..))
        )
    }
}

impl From<DbError> for StoreError {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Sql(error) => store_error(&error),
            DbError::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                Self::Full("free space on the disk of the data folder".to_owned())
            }
            DbError::Io(error) => Self::Unavailable(error.to_string()),
            DbError::Corrupt(text) => Self::Corrupt(text),
            DbError::Invalid(text) => Self::Invalid(text),
        }
    }
}

/// Whether the disk or the database is full.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    // The shared-memory file of the log is the first that fails to grow on a full disk.
    let index_cannot_grow = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || index_cannot_grow
}

fn store_error(error: &rusqlite::Error) -> StoreError {
    if is_full(error) {
        return StoreError::Full("free space on the disk of the data folder".to_owned());
    }
    // SQLite's messages are generic; the extended code says more.
    let text = match error.sqlite_error() {
        Some(code) => format!("{error} (SQLite's error {})", code.extended_code),
        None => error.to_string(),
    };
    match (error, error.sqlite_error_code()) {
        (_, Some(ErrorCode::TooBig | ErrorCode::ConstraintViolation)) => StoreError::Invalid(text),
        (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => StoreError::Corrupt(
            format!("{text}; the database is damaged, restore the data folder from a copy"),
        ),
        (
            rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..),
            _,
        ) => StoreError::Corrupt(text),
        (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => StoreError::Unavailable(
            format!("{text}; another program holds the database, is a copy of it being made?"),
        ),
        (_, Some(ErrorCode::ReadOnly)) => {
            StoreError::Unavailable(format!("{text}; the data folder has become read-only"))
        }
        _ => StoreError::Unavailable(text),
    }
}
