//! The attempts of a job.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidegate_core::{Account, JobId, Status};

use super::error::DbError;
use super::lease_markers::LeaseMarker;
use super::rows;
use crate::attempts::AttemptColumns;
use crate::columns;

/// The earlier attempts of a job, and its last one if a later attempt replaces it. For statements that
/// overwrite the last attempt: at the first attempt it is the value of a column, without any work. An attempt of a
/// previous server process ended before this one opened the store, at `$opened`; the next attempt begins at
/// `$began`. Has to keep at most
/// [`MAX_EARLIER_ATTEMPTS`](tidegate_core::job_attempt::MAX_EARLIER_ATTEMPTS).
macro_rules! with_last_attempt {
    ($number:literal, $opened:literal, $began:literal) => {
        concat!(
            "CASE WHEN started_at IS NULL OR attempt >= ", $number, " THEN earlier_attempts ELSE
                 json_insert(CASE WHEN json_array_length(earlier_attempts) >= 50 THEN json_remove(earlier_attempts, '$[0]')
                                  ELSE coalesce(earlier_attempts, '[]') END,
                     '$[#]', json_object('number', attempt, 'started_at', started_at, 'end', 'lost', 'ended_at',
                         max(started_at, CASE WHEN started_at < ", $opened, " THEN ", $opened, " ELSE ", $began, " END)))
             END"
        )
    };
}
pub(super) use with_last_attempt;

/// The columns about the attempts of a job, if the job exists.
pub(super) fn columns_of(
    conn: &Connection,
    account: &Account,
    id: &JobId,
) -> Result<Option<AttemptColumns>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT attempt, status, started_at, completed_at, earlier_attempts FROM jobs
         WHERE account = ? AND id = ?",
    )?;
    let values = params![columns::account_text(account), id.as_str()];
    let read = |row: &Row<'_>| Ok(read(row));
    statement.query_row(values, read).optional()?.transpose()
}

fn read(row: &Row<'_>) -> Result<AttemptColumns, DbError> {
    Ok(AttemptColumns {
        attempt: row.get(0)?,
        status: columns::status(rows::text(row, 1)?)?,
        started_at: rows::timestamp(row, 2)?,
        completed_at: rows::timestamp(row, 3)?,
        expired_at: None,
        director: None,
        earlier: row.get(4)?,
    })
}

impl AttemptColumns {
    /// With the lease of the first attempt, if that is not in the database yet.
    pub(super) fn with_marker(self, marker: Option<LeaseMarker>) -> Self {
        match marker {
            Some(marker) if !self.status.is_terminal() && self.attempt < marker.fence.attempt => {
                Self {
                    attempt: marker.fence.attempt,
                    status: Status::Processing,
                    started_at: Some(marker.began_at),
                    ..self
                }
            }
            Some(_) | None => self,
        }
    }
}
