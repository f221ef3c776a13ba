//! Reads job records from rows.

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::JobId;
use tidegate_core::record::{Completion, JobRecord, JobSpec, Target};
use tidegate_core::store::OpenJob;
use tokio_postgres::Row;

use super::error::PgError;
use super::text::unescape;
use crate::columns;
use crate::cursor::NumberedRecord;
use crate::records::NO_INPUT;

/// All columns of a record, in this order: of the job `j`, with these expressions for its input and the
/// columns of its end.
macro_rules! record_columns {
    ($input:literal, $output:literal, $logs:literal, $error:literal, $metrics:literal, $remote:literal) => {
        concat!(
            "j.number, j.account, j.id, j.kind, j.model, j.version, j.deployment, j.api, j.hook, j.context, j.status, ",
            "j.attempt, j.created_at, j.deadline, j.started_at, j.completed_at, j.data_removed, ",
            $input, ", ", $output, ", ", $logs, ", ", $error, ", ", $metrics,
            ", j.files, j.secrets, j.cancel_requested, j.destination, j.policies, ", $remote, ", j.released",
        )
    };
}
pub(super) use record_columns;

/// The number of columns of a record.
pub(super) const RECORD_COLUMNS: usize = 29;

/// A `SELECT` of all columns of a record from tables that contain the jobs as `j`, followed by the rest of the
/// statement. After `without_input`, the input is absent and its size is the last column.
macro_rules! record_of {
    (without_input $from:expr, $rest:expr) => {
        record_of!(@columns "NULL::bytea", ", octet_length(i.json) ", $from, $rest)
    };
    (@columns $input:literal, $last:literal, $from:expr, $rest:expr) => {
        concat!(
            "SELECT ",
            $crate::postgres::rows::record_columns!($input, "e.output", "e.logs", "e.error", "e.metrics", "e.remote"),
            $last,
            "FROM ",
            $from,
            " LEFT JOIN tidegate.inputs i ON i.number = j.number LEFT JOIN tidegate.ends e ON e.number = j.number ",
            $rest
        )
    };
    ($from:expr, $rest:expr) => {
        record_of!(@columns "i.json", " ", $from, $rest)
    };
}
pub(super) use record_of;

/// Reads a row of [`record_of`].
pub(super) fn record(row: &Row) -> Result<NumberedRecord, PgError> {
    let number = row.try_get(0)?;
    // The number identifies the row in the error.
    read(row)
        .map(|record| (number, record))
        .map_err(|fault| match fault {
            PgError::Corrupt(what) => PgError::Corrupt(format!("job number {number}: {what}")),
            other => other,
        })
}

/// Reads the record of an open job whose row has its columns; `None` if the input is not there.
pub(super) fn open_record(row: &Row) -> Result<Option<JobRecord>, PgError> {
    match row.try_get::<_, Option<&[u8]>>(17)? {
        Some(_) => Ok(Some(read(row)?)),
        None => Ok(None),
    }
}

/// Reads a row of [`record_of`] without the input.
pub(super) fn open_job(row: &Row) -> Result<OpenJob, PgError> {
    let (number, record) = record(row)?;
    let input_bytes: Option<i32> = row.try_get(RECORD_COLUMNS)?;
    Ok(OpenJob {
        number: number.unsigned_abs(),
        record,
        input_bytes: usize::try_from(input_bytes.unwrap_or_default()).unwrap_or_default(),
    })
}

fn read(row: &Row) -> Result<JobRecord, PgError> {
    Ok(JobRecord {
        spec: spec(row)?,
        attempt: attempt(row)?,
        released: unsigned(row, 28)?,
        status: columns::status(row.try_get(10)?)?,
        started_at: timestamp(row, 14)?,
        completion: completion(row)?,
        data_removed: row.try_get(16)?,
        cancel_requested: row.try_get(24)?,
    })
}

fn spec(row: &Row) -> Result<JobSpec, PgError> {
    let input: Option<Vec<u8>> = row.try_get(17)?;
    Ok(JobSpec {
        id: JobId::parse(row.try_get(2)?).map_err(columns::corrupt)?,
        account: columns::account(row.try_get(1)?)?,
        kind: columns::kind(row.try_get(3)?)?,
        target: target(row, 4)?,
        input: input.map_or_else(|| Bytes::from_static(NO_INPUT), Bytes::from),
        files: columns::json(row.try_get(22)?)?,
        secrets: columns::json(row.try_get(23)?)?,
        context: columns::json(row.try_get(9)?)?,
        destination: optional_text(row, 25)?,
        hook: row
            .try_get::<_, Option<&str>>(8)?
            .map(columns::json)
            .transpose()?,
        api: columns::api(row.try_get(7)?)?,
        policies: columns::json(row.try_get(26)?)?,
        deadline: timestamp(row, 13)?,
        created_at: columns::timestamp(row.try_get(12)?)?,
    })
}

/// The model, its version and the deployment in three columns.
pub(super) fn target(row: &Row, column: usize) -> Result<Target, PgError> {
    Ok(Target {
        model: text(row, column)?,
        version: text(row, column + 1)?,
        deployment: columns::deployment_ref(optional_text(row, column + 2)?),
    })
}

fn completion(row: &Row) -> Result<Option<Completion>, PgError> {
    let Some(completed_at) = timestamp(row, 15)? else {
        return Ok(None);
    };
    Ok(Some(Completion {
        completed_at,
        output: row.try_get::<_, Option<Vec<u8>>>(18)?.map(Bytes::from),
        logs: text(row, 19)?,
        error: optional_text(row, 20)?,
        metrics: columns::json(row.try_get(21)?)?,
        remote: row
            .try_get::<_, Option<&str>>(27)?
            .map(columns::json)
            .transpose()?,
    }))
}

/// The number of the last lease in a row of a record.
pub(super) fn attempt(row: &Row) -> Result<u32, PgError> {
    unsigned(row, 11)
}

/// A text that may contain U+0000.
pub(super) fn text(row: &Row, column: usize) -> Result<String, PgError> {
    Ok(unescape(row.try_get(column)?))
}

/// A text that may be absent and may contain U+0000.
pub(super) fn optional_text(row: &Row, column: usize) -> Result<Option<String>, PgError> {
    Ok(row.try_get::<_, Option<String>>(column)?.map(unescape))
}

/// A time that may be absent.
pub(super) fn timestamp(row: &Row, column: usize) -> Result<Option<Timestamp>, PgError> {
    Ok(row
        .try_get::<_, Option<i64>>(column)?
        .map(columns::timestamp)
        .transpose()?)
}

/// An `integer` that is not negative.
pub(super) fn unsigned(row: &Row, column: usize) -> Result<u32, PgError> {
    let value: i32 = row.try_get(column)?;
    Ok(u32::try_from(value).map_err(columns::corrupt)?)
}
