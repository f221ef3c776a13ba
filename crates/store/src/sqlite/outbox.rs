//! Outbox messages: the last webhook of each job, until it is delivered or given up, and for a
//! while after that. The table is called `letters`.

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tidegate_core::record::{OutboxMessage, SettledMessage, Settlement, WebhookSpec};
use tidegate_core::store::{Reopened, SendOutcome};
use tidegate_core::{Account, JobId};

use super::error::DbError;
use super::{columns, jobs, rows};

pub(super) fn insert(conn: &Connection, message: &OutboxMessage) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO letters (id, account, job, hook, created_at, attempts, next_at, model) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let number = statement.insert(params![
        message.id,
        columns::account_text(&message.account),
        message.job.as_str(),
        columns::json_text(&message.hook)?,
        columns::micros(message.created_at),
        message.attempts,
        columns::micros(message.next_at),
        message.model,
    ])?;
    conn.prepare_cached("INSERT INTO bodies (number, body) VALUES (?, ?)")?
        .execute(params![number, &message.body[..]])?;
    Ok(())
}

pub(super) fn pending(
    conn: &Connection,
    after: u64,
    limit: usize,
) -> Result<Vec<(i64, OutboxMessage)>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.id, l.account, l.job, l.hook, b.body, l.created_at, l.attempts, l.next_at, l.model, l.number
         FROM letters l JOIN bodies b ON b.number = l.number
         WHERE l.settled_at IS NULL AND l.number > ? ORDER BY l.number LIMIT ?",
    )?;
    let found = statement.query(params![jobs::number(after), jobs::count(limit)])?;
    Ok(rows::take_up_to(
        found,
        limit,
        |row| Ok((row.get(9)?, message(row)?)),
        |(_, message)| message.body.len(),
    )?
    .0)
}

fn message(row: &Row<'_>) -> Result<OutboxMessage, DbError> {
    Ok(OutboxMessage {
        id: row.get(0)?,
        account: columns::account(&row.get::<_, String>(1)?)?,
        job: JobId::parse(&row.get::<_, String>(2)?).map_err(columns::corrupt)?,
        hook: columns::json(&row.get::<_, String>(3)?)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(4)?),
        created_at: columns::timestamp(row.get(5)?)?,
        attempts: row.get(6)?,
        next_at: columns::timestamp(row.get(7)?)?,
        model: row.get(8)?,
    })
}

pub(super) fn record_attempt(
    conn: &Connection,
    id: &str,
    tried: &SendOutcome,
) -> Result<(), DbError> {
    match tried {
        SendOutcome::Retry(next) => conn
            .prepare_cached("UPDATE letters SET attempts = attempts + 1, next_at = ? WHERE id = ? AND settled_at IS NULL")?
            .execute(params![columns::micros(*next), id])?,
        SendOutcome::Settled(settled) => conn
            .prepare_cached("UPDATE letters SET attempts = attempts + 1, settled_at = ?, given_up = ? WHERE id = ? AND settled_at IS NULL")?
            .execute(params![columns::micros(settled.at), settled.given_up, id])?,
    };
    Ok(())
}

pub(super) fn settled(
    conn: &Connection,
    account: Option<&Account>,
    job: Option<&JobId>,
    limit: usize,
) -> Result<Vec<SettledMessage>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.id, l.account, l.job, l.model, l.hook, l.created_at, l.attempts, l.settled_at, l.given_up FROM letters l
         WHERE l.settled_at IS NOT NULL AND (?1 IS NULL OR l.account = ?1) AND (?2 IS NULL OR l.job = ?2)
         ORDER BY l.settled_at DESC, l.number DESC LIMIT ?3",
    )?;
    let mut found = statement.query(params![
        account.map(columns::account_text),
        job.map(JobId::as_str),
        jobs::count(limit)
    ])?;
    let mut messages = Vec::new();
    while let Some(row) = found.next()? {
        messages.push(settled_message(row)?);
    }
    Ok(messages)
}

fn settled_message(row: &Row<'_>) -> Result<SettledMessage, DbError> {
    Ok(SettledMessage {
        id: row.get(0)?,
        account: columns::account(&row.get::<_, String>(1)?)?,
        job: JobId::parse(&row.get::<_, String>(2)?).map_err(columns::corrupt)?,
        model: row.get(3)?,
        url: columns::json::<WebhookSpec>(&row.get::<_, String>(4)?)?.url,
        created_at: columns::timestamp(row.get(5)?)?,
        attempts: row.get(6)?,
        settled: Settlement {
            at: columns::timestamp(row.get(7)?)?,
            given_up: row.get(8)?,
        },
    })
}

pub(super) fn reopen(
    conn: &Connection,
    id: &str,
    account: Option<&Account>,
    at: Timestamp,
) -> Result<Reopened, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.id, l.account, l.job, l.hook, b.body, l.created_at, l.attempts, l.next_at, l.model, l.settled_at
         FROM letters l JOIN bodies b ON b.number = l.number WHERE l.id = ?1 AND (?2 IS NULL OR l.account = ?2)",
    )?;
    let mut found = statement.query(params![id, account.map(columns::account_text)])?;
    let Some(row) = found.next()? else {
        return Ok(Reopened::Unknown);
    };
    if row.get::<_, Option<i64>>(9)?.is_none() {
        return Ok(Reopened::StillPending);
    }
    let message = OutboxMessage {
        next_at: at,
        ..message(row)?
    };
    let mut statement = conn.prepare_cached(
        "UPDATE letters SET settled_at = NULL, given_up = NULL, next_at = ? WHERE id = ?",
    )?;
    statement.execute(params![columns::micros(at), id])?;
    Ok(Reopened::Message(Box::new(message)))
}

/// Deletes messages that were settled before a time.
pub(super) fn forget(
    conn: &Connection,
    settled_before: Timestamp,
    limit: usize,
) -> Result<(), DbError> {
    let mut statement =
        conn.prepare_cached("DELETE FROM letters WHERE number IN (SELECT number FROM letters WHERE settled_at < ? LIMIT ?)")?;
    statement.execute(params![columns::micros(settled_before), jobs::count(limit)])?;
    Ok(())
}

/// Deletes settled messages about the job with this number.
pub(super) fn remove_about(conn: &Connection, number: i64) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "DELETE FROM letters WHERE settled_at IS NOT NULL AND job = (SELECT id FROM jobs WHERE number = ?1)
         AND account = (SELECT account FROM jobs WHERE number = ?1)",
    )?;
    statement.execute([number])?;
    Ok(())
}
