//! The layout of the database and its migrations.
//!
//! A released migration never changes: a new layout is a new entry at the end of [`STEPS`].

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::open::StoreOpenError;

/// `tide`: the application id of our databases.
const APPLICATION: u32 = 0x7469_6465;

/// The migrations; the one at index `n` leads from layout `n` to `n + 1`.
pub(super) const STEPS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
    include_str!("schema/8.sql"),
];

/// Migrates the database to the latest layout, one transaction per step.
pub(super) fn migrate(conn: &mut Connection, file: &Path) -> Result<(), StoreOpenError> {
    migrate_by(STEPS, conn, file)
}

/// Like [`migrate`], with other steps.
pub(super) fn migrate_by(
    steps: &[&str],
    conn: &mut Connection,
    file: &Path,
) -> Result<(), StoreOpenError> {
    let sql = |source| StoreOpenError::sql(file, source);
    let found = layout(conn).map_err(sql)?;
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if !is_ours(conn, found).map_err(sql)? {
        return Err(StoreOpenError::Foreign {
            file: file.to_owned(),
        });
    }
    if found > known {
        return Err(StoreOpenError::Newer {
            file: file.to_owned(),
            found,
            known,
        });
    }
    for (from, step) in (0..known).zip(steps).skip(found as usize) {
        take(conn, from, step).map_err(|source| failed(file, from, source))?;
    }
    Ok(())
}

fn failed(file: &Path, from: u32, source: rusqlite::Error) -> StoreOpenError {
    match StoreOpenError::sql(file, source) {
        StoreOpenError::Database { file, source } => {
            StoreOpenError::Migration { file, from, source }
        }
        other => other,
    }
}

fn take(conn: &mut Connection, from: u32, step: &str) -> rusqlite::Result<()> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(step)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", from + 1)?;
    transaction.commit()
}

fn layout(conn: &Connection) -> rusqlite::Result<u32> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// An empty file is accepted; a file with tables must have our application id.
fn is_ours(conn: &Connection, layout: u32) -> rusqlite::Result<bool> {
    let application: u32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(application == APPLICATION || (application == 0 && tables == 0 && layout == 0))
}
