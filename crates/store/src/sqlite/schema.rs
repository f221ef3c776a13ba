//! The layout of the database, and the steps to it from every earlier one.
//!
//! A step is never changed once it was released: a change of the layout is a new step at the end of [`STEPS`].

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::open::StoreOpenError;

/// `tide`, to tell our databases from others.
const APPLICATION: u32 = 0x7469_6465;

/// From the layout with the number of its place to the one after.
const STEPS: &[&str] = &[
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
];

/// Brings the database to the newest layout, one transaction per step.
pub(super) fn migrate(conn: &mut Connection, file: &Path) -> Result<(), StoreOpenError> {
    migrate_by(STEPS, conn, file)
}

/// As [`migrate`], with these steps.
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

/// An empty file becomes ours; one with tables must say that it is.
fn is_ours(conn: &Connection, layout: u32) -> rusqlite::Result<bool> {
    let application: u32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(application == APPLICATION || (application == 0 && tables == 0 && layout == 0))
}
