//! Reads job records from rows.

use bytes::Bytes;
use rusqlite::Row;
use serde_json::{Map, Value};
use tidegate_core::JobId;
use tidegate_core::record::{Api, Completion, JobRecord, JobSpec, Target};
use tidegate_core::remote::RemoteFacts;
use tidegate_core::store::OpenJob;

use super::error::DbError;
use crate::columns;
use crate::cursor::NumberedRecord;
use crate::records::{MAX_RESULT_BYTES, NO_INPUT};

/// A `SELECT` of all columns of a record, in this order, followed by the rest of the statement. After
/// `without_input`, the input is absent and its size is the last column.
macro_rules! record_of {
    (without_input $($rest:tt)*) => {
        record_of!(@columns "NULL", ", length(i.json) ", $($rest)*)
    };
    (@columns $input:literal, $last:literal, $($rest:tt)*) => {
        concat!(
            "SELECT j.number, j.account, j.id, j.kind, j.model, j.version, j.deployment, j.face, j.hook, j.context, j.status, ",
            "j.attempt, j.created_at, j.deadline, j.started_at, j.completed_at, j.data_removed, ",
            $input,
            ", e.output, e.logs, e.error, e.metrics, j.files, j.secrets, j.cancel_asked, j.destination, j.policies, e.remote",
            $last,
            "FROM jobs j LEFT JOIN inputs i ON i.number = j.number LEFT JOIN endings e ON e.number = j.number ",
            $($rest)*
        )
    };
    ($($rest:tt)*) => {
        record_of!(@columns "i.json", " ", $($rest)*)
    };
}
pub(super) use record_of;

/// Reads a row of [`record_of`].
pub(super) fn record(row: &Row<'_>) -> Result<NumberedRecord, DbError> {
    let number = row.get(0)?;
    let read = read(row);
    // The number identifies the row in the error.
    read.map(|record| (number, record))
        .map_err(|fault| match fault {
            DbError::Corrupt(what) => DbError::Corrupt(format!("job number {number}: {what}")),
            other => other,
        })
}

/// Reads a row of [`record_of`] without the input.
pub(super) fn open_job(row: &Row<'_>) -> Result<OpenJob, DbError> {
    let (number, record) = record(row)?;
    let input_bytes: Option<i64> = row.get(28)?;
    Ok(OpenJob {
        number: number.unsigned_abs(),
        record,
        input_bytes: usize::try_from(input_bytes.unwrap_or_default()).unwrap_or_default(),
    })
}

fn read(row: &Row<'_>) -> Result<JobRecord, DbError> {
    Ok(JobRecord {
        spec: spec(row)?,
        attempt: row.get(11)?,
        // Jobs of this store are not given back.
        released: 0,
        status: columns::status(text(row, 10)?)?,
        started_at: timestamp(row, 14)?,
        completion: completion(row)?,
        data_removed: row.get(16)?,
        cancel_requested: row.get(24)?,
    })
}

fn spec(row: &Row<'_>) -> Result<JobSpec, DbError> {
    let input: Option<Vec<u8>> = row.get(17)?;
    let hook: Option<String> = row.get(8)?;
    let (api, policies) = (
        columns::api(text(row, 7)?)?,
        row.get::<_, Option<String>>(26)?,
    );
    Ok(JobSpec {
        id: JobId::parse(text(row, 2)?).map_err(columns::corrupt)?,
        account: columns::account(text(row, 1)?)?,
        kind: columns::kind(text(row, 3)?)?,
        target: Target {
            model: row.get(4)?,
            version: row.get(5)?,
            deployment: columns::deployment_ref(row.get(6)?),
        },
        input: input.map_or_else(|| Bytes::from_static(NO_INPUT), Bytes::from),
        files: columns::json(text(row, 22)?)?,
        secrets: columns::json(text(row, 23)?)?,
        context: columns::json(text(row, 9)?)?,
        destination: row.get(25)?,
        hook: hook.as_deref().map(columns::json).transpose()?,
        api,
        policies: policies
            .as_deref()
            .map_or_else(|| Ok(api.policies()), columns::json)?,
        deadline: timestamp(row, 13)?,
        created_at: columns::timestamp(row.get(12)?)?,
    })
}

fn completion(row: &Row<'_>) -> Result<Option<Completion>, DbError> {
    let Some(completed_at) = timestamp(row, 15)? else {
        return Ok(None);
    };
    let mut metrics = columns::json(text(row, 21)?)?;
    let remote = match row.get::<_, Option<String>>(27)? {
        Some(remote) => Some(columns::json(&remote)?),
        None if columns::api(text(row, 7)?)? == Api::Runpod => remote_facts_among(&mut metrics),
        None => None,
    };
    Ok(Some(Completion {
        completed_at,
        output: row.get::<_, Option<Vec<u8>>>(18)?.map(Bytes::from),
        logs: row.get(19)?,
        error: row.get(20)?,
        metrics,
        remote,
    }))
}

/// The facts about a remote worker in a row of layout 4 or earlier, where they are among the metrics.
fn remote_facts_among(metrics: &mut Map<String, Value>) -> Option<RemoteFacts> {
    if !metrics.contains_key("worker") {
        return None;
    }
    let mut flag = |name| metrics.remove(name).is_some();
    let (waiting, streamed) = (flag("waits"), flag("streamed"));
    let (no_output, timed_out) = (flag("no_output"), flag("timed_out"));
    Some(RemoteFacts {
        worker: metrics
            .remove("worker")
            .and_then(|worker| Some(worker.as_str()?.to_owned())),
        retries: metrics.remove("retries").and_then(|count| count.as_u64()),
        progress: metrics.remove("progress"),
        final_output: metrics.remove("final_output"),
        waiting,
        streamed,
        no_output,
        timed_out,
        ..RemoteFacts::default()
    })
}

pub(super) fn text<'row>(row: &'row Row<'_>, column: usize) -> Result<&'row str, DbError> {
    Ok(row.get_ref(column)?.as_str().map_err(columns::corrupt)?)
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> Result<Option<jiff::Timestamp>, DbError> {
    Ok(row
        .get::<_, Option<i64>>(column)?
        .map(columns::timestamp)
        .transpose()?)
}

/// Reads up to `limit` rows, fewer if they are large, and returns whether more exist. The statement
/// must select at least one row more than `limit`.
pub(super) fn take_up_to<T>(
    mut rows: rusqlite::Rows<'_>,
    limit: usize,
    read: impl Fn(&Row<'_>) -> Result<T, DbError>,
    approx_size: impl Fn(&T) -> usize,
) -> Result<(Vec<T>, bool), DbError> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if items.len() == limit || bytes >= MAX_RESULT_BYTES {
            return Ok((items, true));
        }
        let item = read(row)?;
        bytes += approx_size(&item);
        items.push(item);
    }
    Ok((items, false))
}
