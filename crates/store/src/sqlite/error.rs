//! What can go wrong between us and SQLite, and what callers are told about it.

use rusqlite::{ErrorCode, ffi};
use tidegate_core::store::StoreError;

/// Why a piece of work on a connection did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DbError {
    /// SQLite said no.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A row holds what we never wrote.
    #[error("{0}")]
    Corrupt(String),
    /// What we were given cannot be kept.
    #[error("{0}")]
    Invalid(String),
}

impl From<DbError> for StoreError {
    fn from(fault: DbError) -> Self {
        match fault {
            DbError::Sql(error) => told(&error),
            DbError::Corrupt(what) => Self::Corrupt(what),
            DbError::Invalid(what) => Self::Invalid(what),
        }
    }
}

/// Whether there was no room left.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    // The shared index beside the log is the first to find no room when its file must grow.
    let index_cannot_grow = error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || index_cannot_grow
}

fn told(error: &rusqlite::Error) -> StoreError {
    if is_full(error) {
        return StoreError::Full("make room on the disk of the data folder".to_owned());
    }
    // SQLite's texts are few; its number tells more.
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
