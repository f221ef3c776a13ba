//! Outbox messages: the last webhook of each job, until it is delivered or given up, and for a
//! while after that. The table is called `letters`. Claiming messages is in `outbox_take.rs`.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tidegate_core::outbox::{
    MessageFilter, MessageState, MessageSummary, OutboxCounts, OutboxMessage, Reopened,
    SendOutcome, Settlement,
};
use tidegate_core::record::WebhookSpec;
use tidegate_core::{Account, JobId};

use super::error::DbError;
use super::jobs;
use crate::columns;

pub(super) fn insert(conn: &Connection, message: &OutboxMessage) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO letters (id, account, job, hook, created_at, attempts, next_at, model, receiver, retry_until, holder)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let claim = message.claim.as_ref();
    let next_at = after(claim.map_or(Duration::ZERO, |claim| claim.lasts));
    let number = statement.insert(params![
        message.id,
        columns::account_text(&message.account),
        message.job.as_str(),
        columns::json_text(&message.hook)?,
        columns::micros(message.created_at),
        message.attempts,
        next_at,
        message.model,
        message.receiver,
        message.retry_until.map(columns::micros),
        claim.map(|claim| claim.holder.as_str()),
    ])?;
    conn.prepare_cached("INSERT INTO bodies (number, body) VALUES (?, ?)")?
        .execute(params![number, &message.body[..]])?;
    Ok(())
}

/// The time after this duration from now, in microseconds.
pub(super) fn after(duration: Duration) -> i64 {
    let now = columns::micros(Timestamp::now());
    now.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// The message with this number, without its claim.
pub(super) fn read(conn: &Connection, number: i64) -> Result<Option<OutboxMessage>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT l.id, l.account, l.job, l.model, l.receiver, l.hook, b.body, l.created_at, l.retry_until, l.attempts
         FROM letters l JOIN bodies b ON b.number = l.number WHERE l.number = ?",
    )?;
    let mut found = statement.query([number])?;
    let Some(row) = found.next()? else {
        return Ok(None);
    };
    Ok(Some(OutboxMessage {
        id: row.get(0)?,
        account: columns::account(&row.get::<_, String>(1)?)?,
        job: JobId::parse(&row.get::<_, String>(2)?).map_err(columns::corrupt)?,
        model: row.get(3)?,
        receiver: row.get(4)?,
        hook: columns::json(&row.get::<_, String>(5)?)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(6)?),
        created_at: columns::timestamp(row.get(7)?)?,
        retry_until: row
            .get::<_, Option<i64>>(8)?
            .map(columns::timestamp)
            .transpose()?,
        attempts: row.get(9)?,
        claim: None,
    }))
}

pub(super) fn record_attempt(
    conn: &Connection,
    id: &str,
    holder: &str,
    outcome: &SendOutcome,
) -> Result<(), DbError> {
    match outcome {
        SendOutcome::Retry(pause) => conn
            .prepare_cached(
                "UPDATE letters SET attempts = attempts + 1, next_at = ?, holder = NULL
                 WHERE id = ? AND settled_at IS NULL AND holder = ?",
            )?
            .execute(params![after(*pause), id, holder])?,
        SendOutcome::Settled(settled) => conn
            .prepare_cached(
                "UPDATE letters SET attempts = attempts + 1, settled_at = ?1, given_up = ?2, holder = NULL
                 WHERE id = ?3 AND settled_at IS NULL AND (?2 IS NULL OR holder = ?4)",
            )?
            .execute(params![
                columns::micros(settled.at),
                settled.given_up,
                id,
                holder
            ])?,
    };
    Ok(())
}

pub(super) fn release(conn: &Connection, id: &str, holder: &str) -> Result<(), DbError> {
    conn.prepare_cached(
        "UPDATE letters SET next_at = ?, holder = NULL WHERE id = ? AND holder = ?",
    )?
    .execute(params![after(Duration::ZERO), id, holder])?;
    Ok(())
}

/// Ends all claims: their holders have exited, because this process has the lock of the folder.
pub(super) fn release_all(conn: &Connection) -> rusqlite::Result<()> {
    let sql = "UPDATE letters SET next_at = ?, holder = NULL WHERE holder IS NOT NULL";
    conn.execute(sql, [after(Duration::ZERO)]).map(drop)
}

pub(super) fn list(
    conn: &Connection,
    filter: &MessageFilter,
) -> Result<Vec<MessageSummary>, DbError> {
    let mut summaries = Vec::new();
    for rest in [
        "l.settled_at IS NULL ORDER BY l.created_at DESC, l.number DESC",
        "l.settled_at IS NOT NULL ORDER BY l.settled_at DESC, l.number DESC",
    ] {
        let account = filter.account.as_ref().map(columns::account_text);
        let job = filter.job.as_ref().map(JobId::as_str);
        let limit = jobs::count(filter.limit);
        let mut values: Vec<&dyn ToSql> = Vec::new();
        let mut conditions = String::new();
        if let Some(account) = &account {
            conditions += "l.account = ? AND ";
            values.push(account);
        }
        if let Some(job) = &job {
            conditions += "l.job = ? AND ";
            values.push(job);
        }
        values.push(&limit);
        let mut statement = conn.prepare_cached(&format!(
            "SELECT l.id, l.account, l.job, l.model, l.hook, l.created_at, l.attempts, l.next_at, l.holder, l.settled_at, l.given_up
             FROM letters l WHERE {conditions}{rest} LIMIT ?"
        ))?;
        let mut found = statement.query(&values[..])?;
        while let Some(row) = found.next()? {
            summaries.push(summary(row)?);
        }
    }
    Ok(summaries)
}

fn summary(row: &Row<'_>) -> Result<MessageSummary, DbError> {
    let (holder, settled_at) = (row.get::<_, Option<String>>(8)?, row.get(9)?);
    let state = match (settled_at, holder) {
        (Some(at), _) => MessageState::Settled(Settlement {
            at: columns::timestamp(at)?,
            given_up: row.get(10)?,
        }),
        (None, Some(_)) => MessageState::Claimed,
        (None, None) => MessageState::Waiting(columns::timestamp(row.get(7)?)?),
    };
    Ok(MessageSummary {
        id: row.get(0)?,
        account: columns::account(&row.get::<_, String>(1)?)?,
        job: JobId::parse(&row.get::<_, String>(2)?).map_err(columns::corrupt)?,
        model: row.get(3)?,
        url: columns::json::<WebhookSpec>(&row.get::<_, String>(4)?)?.url,
        created_at: columns::timestamp(row.get(5)?)?,
        attempts: row.get(6)?,
        state,
    })
}

pub(super) fn counts(conn: &Connection) -> Result<OutboxCounts, DbError> {
    let pending: i64 = conn
        .prepare_cached("SELECT count(*) FROM letters WHERE settled_at IS NULL")?
        .query_row([], |row| row.get(0))?;
    let mut statement = conn.prepare_cached(
        "SELECT model, count(*) FROM letters WHERE settled_at IS NULL AND attempts > 0 GROUP BY model",
    )?;
    let retrying = statement
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?
        .map(|row| row.map(|(model, count)| (model, unsigned(count))))
        .collect::<Result<_, _>>()?;
    Ok(OutboxCounts {
        pending: unsigned(pending),
        retrying,
    })
}

fn unsigned(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}

pub(super) fn reopen(
    conn: &Connection,
    id: &str,
    account: Option<&Account>,
    window: Duration,
) -> Result<Reopened, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT settled_at IS NOT NULL, holder IS NOT NULL AND next_at > ?3 FROM letters
         WHERE id = ?1 AND (?2 IS NULL OR account = ?2)",
    )?;
    let now = after(Duration::ZERO);
    let values = params![id, account.map(columns::account_text), now];
    let found: Option<(bool, bool)> = statement
        .query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => return Ok(Reopened::Unknown),
        Some((false, true)) => return Ok(Reopened::Claimed),
        Some((false, false)) => conn
            .prepare_cached("UPDATE letters SET next_at = ?, holder = NULL WHERE id = ?")?
            .execute(params![now, id])?,
        Some((true, _)) => conn
            .prepare_cached(
                "UPDATE letters SET settled_at = NULL, given_up = NULL, next_at = ?, retry_until = ? WHERE id = ?",
            )?
            .execute(params![now, after(window), id])?,
    };
    Ok(Reopened::Due)
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
