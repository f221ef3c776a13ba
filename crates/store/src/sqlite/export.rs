//! Reads everything in the database in order, for a migration to another store.

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_core::chain;

use super::error::DbError;
use super::rows::{self, record_of};
use super::{SqliteStore, outbox};
use crate::migration::{
    ExportedDocument, ExportedJob, ExportedMessage, ExportedPage, SourceCounts,
};
use crate::records::{MAX_RESULT_BYTES, approx_size};

/// The most rows of a page.
const PAGE: usize = 200;

impl SqliteStore {
    pub(crate) async fn export_jobs(
        &self,
        after: i64,
    ) -> Result<ExportedPage<ExportedJob>, tidegate_core::store::StoreError> {
        self.readers.read(move |conn| jobs(conn, after)).await
    }

    pub(crate) async fn export_messages(
        &self,
        after: i64,
    ) -> Result<ExportedPage<ExportedMessage>, tidegate_core::store::StoreError> {
        self.readers.read(move |conn| messages(conn, after)).await
    }

    pub(crate) async fn export_documents(
        &self,
    ) -> Result<Vec<ExportedDocument>, tidegate_core::store::StoreError> {
        self.readers.read(documents).await
    }

    pub(crate) async fn export_counts(
        &self,
    ) -> Result<SourceCounts, tidegate_core::store::StoreError> {
        self.readers.read(counts).await
    }
}

/// The next rows of a table, until the page is full. A row that cannot be read is logged and left out.
fn page<T>(
    conn: &Connection,
    after: i64,
    next: fn(&Connection, i64) -> rusqlite::Result<Option<i64>>,
    read: impl Fn(&Connection, i64) -> Result<Option<(T, usize)>, DbError>,
) -> Result<ExportedPage<T>, DbError> {
    let mut page = ExportedPage {
        items: Vec::new(),
        last: after,
        is_end: false,
        unreadable: 0,
    };
    let mut bytes = 0;
    while page.items.len() < PAGE && bytes < MAX_RESULT_BYTES {
        let Some(number) = next(conn, page.last)? else {
            page.is_end = true;
            break;
        };
        page.last = number;
        match read(conn, number) {
            Ok(Some((item, size))) => {
                bytes += size;
                page.items.push(item);
            }
            Ok(None) => {}
            Err(error @ DbError::Corrupt(_)) => {
                tracing::error!(number, error = %chain(&error), "failed to read a row, left it in the data folder");
                page.unreadable += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(page)
}

/// A damaged list is left out; the job is worth more.
const EARLIER_ATTEMPTS: &str = "SELECT CASE WHEN json_valid(earlier_attempts) THEN earlier_attempts END FROM jobs WHERE number = ?";

fn jobs(conn: &Connection, after: i64) -> Result<ExportedPage<ExportedJob>, DbError> {
    let next = |conn: &Connection, after: i64| {
        conn.prepare_cached("SELECT number FROM jobs WHERE number > ? ORDER BY number LIMIT 1")?
            .query_row([after], |row| row.get(0))
            .optional()
    };
    page(conn, after, next, |conn, number| {
        let mut statement = conn.prepare_cached(record_of!("WHERE j.number = ?"))?;
        let mut found = statement.query([number])?;
        let Some(row) = found.next()? else {
            return Ok(None);
        };
        let (number, record) = rows::record(row)?;
        let size = approx_size(&record);
        let earlier_attempts = conn
            .prepare_cached(EARLIER_ATTEMPTS)?
            .query_row([number], |row| row.get(0))?;
        let exported = ExportedJob {
            number,
            record,
            earlier_attempts,
        };
        Ok(Some((exported, size)))
    })
}

fn messages(conn: &Connection, after: i64) -> Result<ExportedPage<ExportedMessage>, DbError> {
    let next = |conn: &Connection, after: i64| {
        conn.prepare_cached("SELECT number FROM letters WHERE number > ? ORDER BY number LIMIT 1")?
            .query_row([after], |row| row.get(0))
            .optional()
    };
    page(conn, after, next, |conn, number| {
        let Some(message) = outbox::read(conn, number)? else {
            return Ok(None);
        };
        let mut statement = conn
            .prepare_cached("SELECT next_at, settled_at, given_up FROM letters WHERE number = ?")?;
        let (next_at, settled_at, given_up) = statement.query_row(params![number], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        let size = message.body.len();
        let exported = ExportedMessage {
            message,
            next_at,
            settled_at,
            given_up,
        };
        Ok(Some((exported, size)))
    })
}

fn documents(conn: &Connection) -> Result<Vec<ExportedDocument>, DbError> {
    let mut statement =
        conn.prepare_cached("SELECT shelf, name, json FROM documents ORDER BY shelf, name")?;
    let found = statement.query_map([], |row| {
        Ok(ExportedDocument {
            namespace: row.get(0)?,
            name: row.get(1)?,
            json: row.get::<_, Vec<u8>>(2)?.into(),
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn counts(conn: &Connection) -> Result<SourceCounts, DbError> {
    let count = |sql: &str| -> rusqlite::Result<usize> {
        conn.query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(|count| usize::try_from(count).unwrap_or_default())
    };
    Ok(SourceCounts {
        jobs: count("SELECT count(*) FROM jobs")?,
        open_jobs: count("SELECT count(*) FROM jobs WHERE completed_at IS NULL")?,
        messages: count("SELECT count(*) FROM letters")?,
        pending_messages: count("SELECT count(*) FROM letters WHERE settled_at IS NULL")?,
        documents: count("SELECT count(*) FROM documents WHERE shelf <> 'files'")?,
        files: 0,
    })
}
