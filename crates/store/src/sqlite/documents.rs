//! Documents: JSON by namespace and name. The column of the namespace is called `shelf`.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::DbError;

pub(super) fn put(
    conn: &Connection,
    namespace: &str,
    name: &str,
    json: &[u8],
) -> Result<(), DbError> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO documents (shelf, name, json) VALUES (?, ?, ?) ON CONFLICT (shelf, name) DO UPDATE SET json = excluded.json",
    )?;
    statement.execute(params![namespace, name, json])?;
    Ok(())
}

pub(super) fn put_new(
    conn: &Connection,
    namespace: &str,
    name: &str,
    json: &Bytes,
) -> Result<Bytes, DbError> {
    if let Some(stored) = fetch(conn, namespace, name)? {
        return Ok(stored);
    }
    put(conn, namespace, name, json)?;
    Ok(json.clone())
}

pub(super) fn swap(
    conn: &Connection,
    namespace: &str,
    name: &str,
    was: &[u8],
    json: &[u8],
) -> Result<bool, DbError> {
    let mut statement = conn.prepare_cached(
        "UPDATE documents SET json = ?4 WHERE shelf = ?1 AND name = ?2 AND json = ?3",
    )?;
    Ok(statement.execute(params![namespace, name, was, json])? > 0)
}

pub(super) fn fetch(
    conn: &Connection,
    namespace: &str,
    name: &str,
) -> Result<Option<Bytes>, DbError> {
    let mut statement =
        conn.prepare_cached("SELECT json FROM documents WHERE shelf = ? AND name = ?")?;
    let json: Option<Vec<u8>> = statement
        .query_row([namespace, name], |row| row.get(0))
        .optional()?;
    Ok(json.map(Bytes::from))
}

pub(super) fn remove(conn: &Connection, namespace: &str, name: &str) -> Result<bool, DbError> {
    let mut statement =
        conn.prepare_cached("DELETE FROM documents WHERE shelf = ? AND name = ?")?;
    Ok(statement.execute([namespace, name])? > 0)
}

/// Names are sorted by their bytes, so those with the prefix are contiguous. `LIKE` would interpret
/// `%` and `_` in the prefix.
pub(super) fn all(
    conn: &Connection,
    namespace: &str,
    prefix: &str,
) -> Result<Vec<(String, Bytes)>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT name, json FROM documents WHERE shelf = ? AND name >= ? ORDER BY name",
    )?;
    let mut rows = statement.query([namespace, prefix])?;
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
