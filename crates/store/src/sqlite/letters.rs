//! The letters: the last messages about jobs, until somebody has taken them.

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tidegate_core::JobId;
use tidegate_core::record::Letter;

use super::fault::Fault;
use super::{jobs, rows, words};

pub(super) fn keep(conn: &Connection, letter: &Letter) -> Result<(), Fault> {
    let mut statement =
        conn.prepare_cached("INSERT INTO letters (id, account, job, hook, created_at, attempts, next_at) VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let number = statement.insert(params![
        letter.id,
        words::account_text(&letter.account),
        letter.job.as_str(),
        words::json_text(&letter.hook)?,
        words::moment_number(letter.created_at),
        letter.attempts,
        words::moment_number(letter.next_at),
    ])?;
    conn.prepare_cached("INSERT INTO bodies (number, body) VALUES (?, ?)")?.execute(params![number, &letter.body[..]])?;
    Ok(())
}

pub(super) fn first(conn: &Connection, limit: usize) -> Result<Vec<Letter>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT l.id, l.account, l.job, l.hook, b.body, l.created_at, l.attempts, l.next_at
         FROM letters l JOIN bodies b ON b.number = l.number ORDER BY l.next_at, l.number LIMIT ?",
    )?;
    let found = statement.query([jobs::count(limit)])?;
    Ok(rows::take_some(found, limit, letter, |letter| letter.body.len())?.0)
}

fn letter(row: &Row<'_>) -> Result<Letter, Fault> {
    Ok(Letter {
        id: row.get(0)?,
        account: words::account(&row.get::<_, String>(1)?)?,
        job: JobId::parse(&row.get::<_, String>(2)?).map_err(words::unreadable)?,
        hook: words::json(&row.get::<_, String>(3)?)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(4)?),
        created_at: words::moment(row.get(5)?)?,
        attempts: row.get(6)?,
        next_at: words::moment(row.get(7)?)?,
    })
}

pub(super) fn tried(conn: &Connection, id: &str, next: Option<Timestamp>) -> Result<(), Fault> {
    match next {
        Some(next) => conn
            .prepare_cached("UPDATE letters SET attempts = attempts + 1, next_at = ? WHERE id = ?")?
            .execute(params![words::moment_number(next), id])?,
        None => conn.prepare_cached("DELETE FROM letters WHERE id = ?")?.execute([id])?,
    };
    Ok(())
}
