//! The documents: small things as JSON, by shelf and name.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::DbError;

pub(super) fn put(conn: &Connection, shelf: &str, name: &str, json: &[u8]) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO documents (shelf, name, json) VALUES (?, ?, ?) ON CONFLICT (shelf, name) DO UPDATE SET json = excluded.json",
    )?;
    statement.execute(params![shelf, name, json])?;
    Ok(())
}

pub(super) fn put_new(
    conn: &Connection,
    shelf: &str,
    name: &str,
    json: &Bytes,
) -> Result<Bytes, DbError> {
    if let Some(kept) = fetch(conn, shelf, name)? {
        return Ok(kept);
    }
    put(conn, shelf, name, json)?;
    Ok(json.clone())
}

pub(super) fn swap(
    conn: &Connection,
    shelf: &str,
    name: &str,
    was: &[u8],
    json: &[u8],
) -> Result<bool, DbError> {
    let mut statement = conn.prepare_cached(
        "UPDATE documents SET json = ?4 WHERE shelf = ?1 AND name = ?2 AND json = ?3",
    )?;
    Ok(statement.execute(params![shelf, name, was, json])? > 0)
}

pub(super) fn fetch(conn: &Connection, shelf: &str, name: &str) -> Result<Option<Bytes>, DbError> {
    let mut statement =
        conn.prepare_cached("SELECT json FROM documents WHERE shelf = ? AND name = ?")?;
    let json: Option<Vec<u8>> = statement
        .query_row([shelf, name], |row| row.get(0))
        .optional()?;
    Ok(json.map(Bytes::from))
}

pub(super) fn remove(conn: &Connection, shelf: &str, name: &str) -> Result<bool, DbError> {
    let mut statement =
        conn.prepare_cached("DELETE FROM documents WHERE shelf = ? AND name = ?")?;
    Ok(statement.execute([shelf, name])? > 0)
}

/// Names are in the order of their bytes, so those with the prefix stand together, from the prefix on. `LIKE`
/// would take `%` and `_` in it for more than they are.
pub(super) fn all(
    conn: &Connection,
    shelf: &str,
    prefix: &str,
) -> Result<Vec<(String, Bytes)>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT name, json FROM documents WHERE shelf = ? AND name >= ? ORDER BY name",
    )?;
    let mut rows = statement.query([shelf, prefix])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if !name.starts_with(prefix) {
            break;
        }
        found.push((name, Bytes::from(row.get::<_, Vec<u8>>(1)?)));
    }
    Ok(found)
}
