//! The statements for one job and for retention. Each function runs inside a transaction of its
//! caller.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, named_params, params};
use tidegate_core::lease::{Fence, LeaseRequest};
use tidegate_core::record::{Completion, JobRecord, JobSpec};
use tidegate_core::store::{CancelRequestResult, FinishOutcome, Inserted, JobFinish, OpenJob};
use tidegate_core::{Account, JobId, Status, chain};

use super::attempts::with_last_attempt;
use super::error::DbError;
use super::lease_markers::LeaseMarker;
use super::rows::{self, record_of};
use super::{leases, outbox};
use crate::columns;

pub(super) fn insert(conn: &Connection, spec: &JobSpec) -> Result<Inserted, DbError> {
    insert_with(conn, spec, |_| Ok(()))
}

/// Inserts a job with its first lease.
pub(super) fn insert_leased(
    conn: &Connection,
    spec: &JobSpec,
    lease: &LeaseRequest,
    opened_at: Timestamp,
) -> Result<Inserted, DbError> {
    let marker = LeaseMarker {
        fence: Fence {
            attempt: 1,
            nonce: lease.nonce,
        },
        began_at: lease.began_at,
    };
    insert_with(conn, spec, |number| {
        Ok(leases::store(conn, number, marker, opened_at)?)
    })
}

fn insert_with(
    conn: &Connection,
    spec: &JobSpec,
    then: impl FnOnce(i64) -> Result<(), DbError>,
) -> Result<Inserted, DbError> {
    match insert_row(conn, spec)? {
        Some(number) => {
            let mut statement =
                conn.prepare_cached("INSERT INTO inputs (number, json) VALUES (?, ?)")?;
            statement.execute(params![number, &spec.input[..]])?;
            then(number)?;
            Ok(Inserted::New)
        }
        None => match get(conn, &spec.account, &spec.id)? {
            Some(record) => Ok(Inserted::Known(Box::new(record))),
            None => Err(DbError::Corrupt(format!(
                "job `{}` is in the index and not in the table",
                spec.id
            ))),
        },
    }
}

pub(super) fn replace(conn: &Connection, spec: &JobSpec) -> Result<Inserted, DbError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM jobs WHERE account = ? AND id = ? AND completed_at IS NOT NULL",
    )?;
    statement.execute(params![
        columns::account_text(&spec.account),
        spec.id.as_str()
    ])?;
    insert(conn, spec)
}

fn insert_row(conn: &Connection, spec: &JobSpec) -> Result<Option<i64>, DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO jobs (account, id, kind, model, version, deployment, face, hook, context, files, secrets, destination, policies, status,
                           created_at, deadline)
         VALUES (:account, :id, :kind, :model, :version, :deployment, :face, :hook, :context, :files, :secrets, :destination, :policies,
                 'queued', :created_at, :deadline)
         ON CONFLICT (account, id) DO NOTHING RETURNING number",
    )?;
    let values = named_params! {
        ":account": columns::account_text(&spec.account),
        ":id": spec.id.as_str(),
        ":kind": columns::kind_text(spec.kind),
        ":model": spec.target.model,
        ":version": spec.target.version,
        ":deployment": spec.target.deployment.as_ref().map(ToString::to_string),
        ":face": columns::api_text(spec.api),
        ":hook": spec.hook.as_ref().map(columns::json_text).transpose()?,
        ":context": columns::json_text(&spec.context)?,
        ":files": columns::json_text(&spec.files)?,
        ":secrets": columns::json_text(&spec.secrets)?,
        ":destination": spec.destination,
        ":policies": columns::json_text(&spec.policies)?,
        ":created_at": columns::micros(spec.created_at),
        ":deadline": spec.deadline.map(columns::micros),
    };
    Ok(statement.query_row(values, |row| row.get(0)).optional()?)
}

pub(super) fn request_cancel(
    conn: &Connection,
    account: &Account,
    id: &JobId,
) -> Result<CancelRequestResult, DbError> {
    let account = columns::account_text(account);
    let mut statement = conn.prepare_cached(
        "UPDATE jobs SET cancel_asked = 1 WHERE account = ? AND id = ? AND completed_at IS NULL",
    )?;
    if statement.execute(params![account, id.as_str()])? > 0 {
        return Ok(CancelRequestResult::Recorded);
    }
    let mut statement = conn.prepare_cached("SELECT 1 FROM jobs WHERE account = ? AND id = ?")?;
    Ok(if statement.exists(params![account, id.as_str()])? {
        CancelRequestResult::Ended
    } else {
        CancelRequestResult::Unknown
    })
}

pub(super) fn finish(
    conn: &Connection,
    finish: &JobFinish,
    opened_at: Timestamp,
) -> Result<FinishOutcome, DbError> {
    if !finish.status.is_terminal() {
        return Err(DbError::Invalid(format!(
            "job `{}` cannot end as {:?}",
            finish.id, finish.status
        )));
    }
    let Some(number) = mark_finished(conn, finish, opened_at)? else {
        return why_not_finished(conn, finish);
    };
    insert_completion(conn, number, &finish.completion)?;
    if let Some(message) = &finish.message {
        outbox::insert(conn, message)?;
    }
    Ok(FinishOutcome::Committed)
}

/// A lease ends its own attempt, also if that is not committed yet, and also if its holder does not know
/// that it was granted. Without a lease, the last known attempt can be ended.
fn mark_finished(
    conn: &Connection,
    finish: &JobFinish,
    opened_at: Timestamp,
) -> Result<Option<i64>, DbError> {
    let mut statement = conn.prepare_cached(concat!(
        "UPDATE jobs SET status = ?5, completed_at = ?6, attempt = max(attempt, ?3), end_nonce = ?4,
             started_at = coalesce(?7, started_at), lease_nonce = CASE WHEN ?7 IS NULL THEN lease_nonce ELSE ?4 END,
             earlier_attempts = CASE WHEN ?7 IS NULL THEN earlier_attempts ELSE ",
        with_last_attempt!("?3", "?9", "?7"),
        " END
         WHERE account = ?1 AND id = ?2 AND completed_at IS NULL AND (cancel_asked = 0 OR ?8)
           AND (attempt < ?3 OR (attempt = ?3 AND ?7 IS NULL) OR lease_nonce = ?4)
         RETURNING number",
    ))?;
    let values = params![
        columns::account_text(&finish.account),
        finish.id.as_str(),
        finish.fence.attempt,
        columns::nonce_text(finish.fence.nonce),
        columns::status_text(finish.status),
        columns::micros(finish.completion.completed_at),
        finish.began_at.map(columns::micros),
        finish.status == Status::Canceled,
        columns::micros(opened_at),
    ];
    Ok(statement.query_row(values, |row| row.get(0)).optional()?)
}

fn why_not_finished(conn: &Connection, finish: &JobFinish) -> Result<FinishOutcome, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT completed_at IS NOT NULL, coalesce(end_nonce = ?3, 0), cancel_asked FROM jobs
         WHERE account = ?1 AND id = ?2",
    )?;
    let values = params![
        columns::account_text(&finish.account),
        finish.id.as_str(),
        columns::nonce_text(finish.fence.nonce),
    ];
    let found = statement
        .query_row(values, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    Ok(match found {
        Some((true, true, _)) => FinishOutcome::AlreadyCommitted,
        Some((false, _, true)) if finish.status != Status::Canceled => {
            FinishOutcome::CancelRequested
        }
        Some(_) | None => FinishOutcome::ByAnother,
    })
}

fn insert_completion(
    conn: &Connection,
    number: i64,
    completion: &Completion,
) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO endings (number, output, logs, error, metrics, remote) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    let metrics = columns::json_text(&completion.metrics)?;
    let remote = completion
        .remote
        .as_ref()
        .map(columns::json_text)
        .transpose()?;
    statement.execute(params![
        number,
        completion.output.as_deref(),
        completion.logs,
        completion.error,
        metrics,
        remote
    ])?;
    Ok(())
}

pub(super) fn get(
    conn: &Connection,
    account: &Account,
    id: &JobId,
) -> Result<Option<JobRecord>, DbError> {
    let mut statement = conn.prepare_cached(record_of!("WHERE j.account = ? AND j.id = ?"))?;
    let mut found = statement.query(params![columns::account_text(account), id.as_str()])?;
    match found.next()? {
        Some(row) => Ok(Some(rows::record(row)?.1)),
        None => Ok(None),
    }
}

pub(super) fn open(conn: &Connection, after: u64, limit: usize) -> Result<Vec<OpenJob>, DbError> {
    // Without a limit, because rows that cannot be read do not count.
    let mut statement = conn.prepare_cached(record_of!(without_input
        "WHERE j.completed_at IS NULL AND j.number > ? ORDER BY j.number"
    ))?;
    let mut found = statement.query(params![number(after)])?;
    let mut jobs = Vec::new();
    while jobs.len() < limit
        && let Some(row) = found.next()?
    {
        match rows::open_job(row) {
            Ok(job) => jobs.push(job),
            Err(error) if error.is_corrupt_row() => {
                tracing::error!(error = %chain(&error), "failed to read open job, skipped it");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(jobs)
}

/// The rows are selected first and marked last, in one transaction.
pub(super) fn remove_data(
    conn: &Connection,
    over_before: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    const CHOSEN: &str = "SELECT number FROM jobs WHERE completed_at IS NOT NULL AND data_removed = 0 AND completed_at < ? \
         ORDER BY completed_at LIMIT ?";
    let over_before = columns::micros(over_before);
    let chosen = conn
        .prepare_cached(CHOSEN)?
        .query_map(params![over_before, count(limit)], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    for number in &chosen {
        conn.prepare_cached("DELETE FROM inputs WHERE number = ?")?
            .execute([number])?;
        conn.prepare_cached("UPDATE endings SET output = NULL, logs = '' WHERE number = ?")?
            .execute([number])?;
        outbox::remove_about(conn, *number)?;
        conn.prepare_cached("UPDATE jobs SET data_removed = 1 WHERE number = ?")?
            .execute([number])?;
    }
    Ok(chosen.len())
}

pub(super) fn forget(
    conn: &Connection,
    over_before: Timestamp,
    limit: usize,
) -> Result<usize, DbError> {
    outbox::forget(conn, over_before, limit)?;
    let mut statement = conn.prepare_cached(
        "DELETE FROM jobs WHERE number IN (
             SELECT number FROM jobs
             WHERE completed_at IS NOT NULL AND data_removed IN (0, 1) AND completed_at < ? LIMIT ?)",
    )?;
    Ok(statement.execute(params![columns::micros(over_before), count(limit)])?)
}

/// A limit as an SQLite integer.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A job number as an SQLite integer.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
