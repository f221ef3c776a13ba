//! Lists of an account's jobs, newest first, in both directions.

use rusqlite::{Connection, params};
use tidegate_core::record::JobRecord;
use tidegate_core::store::{JobQuery, Page};

use super::error::DbError;
use super::jobs;
use super::rows::{self, record_of};
use crate::columns;
use crate::cursor::{ListPosition, NumberedRecord, PageCursor, page_of};
use crate::records::approx_size;

/// One page. `conn` must be in a transaction, so that page and neighbours are of the same state.
pub(super) fn page(conn: &Connection, query: &JobQuery) -> Result<Page<JobRecord>, DbError> {
    let list = ListQuery::of(conn, query);
    let way = match &query.from {
        None => Some(PageCursor::Older(ListPosition::NEWEST)),
        Some(cursor) => PageCursor::parse(cursor),
    };
    match way {
        Some(PageCursor::Older(from)) => list.older(from),
        Some(PageCursor::Newer(from)) => list.newer(from),
        None => Ok(Page {
            items: Vec::new(),
            next: None,
            previous: None,
        }),
    }
}

// Both directions use the index `jobs_listed`, whose entries end with the number.
macro_rules! older {
    () => {
        "WHERE j.account = ?1 AND j.kind = ?2 AND (j.created_at, j.number) < (?3, ?4) AND j.created_at >= ?5
         ORDER BY j.created_at DESC, j.number DESC LIMIT ?6"
    };
}
macro_rules! newer {
    () => {
        "WHERE j.account = ?1 AND j.kind = ?2 AND (j.created_at, j.number) > (?3, ?4) AND j.created_at < ?5
         ORDER BY j.created_at, j.number LIMIT ?6"
    };
}
pub(super) const OLDER: &str = record_of!(older!());
pub(super) const NEWER: &str = record_of!(newer!());
pub(super) const ANY_OLDER: &str = concat!("SELECT 1 FROM jobs j ", older!());
pub(super) const ANY_NEWER: &str = concat!("SELECT 1 FROM jobs j ", newer!());

/// A list query with its bounds.
struct ListQuery<'a> {
    conn: &'a Connection,
    account: &'a str,
    kind: &'static str,
    /// The first timestamp in the list.
    after: i64,
    /// The first timestamp after the list.
    before: i64,
    limit: usize,
}

impl<'a> ListQuery<'a> {
    fn of(conn: &'a Connection, query: &'a JobQuery) -> Self {
        Self {
            conn,
            account: columns::account_text(&query.account),
            kind: columns::kind_text(query.kind),
            after: query.created_after.map_or(i64::MIN, columns::micros),
            before: query.created_before.map_or(i64::MAX, columns::micros),
            limit: query.limit,
        }
    }

    fn older(&self, from: ListPosition) -> Result<Page<JobRecord>, DbError> {
        // One bound on each side: with two, SQLite may start at the outer one and scan.
        let from = from.min(ListPosition {
            created_at: self.before,
            number: i64::MIN,
        });
        let (items, more) = self.walk(OLDER, from, self.after)?;
        let newer = items.first().map_or(Ok(false), |first| {
            self.any(ANY_NEWER, ListPosition::of(first), self.before)
        })?;
        Ok(page_of(items, more, newer))
    }

    fn newer(&self, from: ListPosition) -> Result<Page<JobRecord>, DbError> {
        let from = from.max(ListPosition {
            created_at: self.after,
            number: i64::MIN,
        });
        let (mut items, more) = self.walk(NEWER, from, self.before)?;
        items.reverse();
        let older = items.last().map_or(Ok(false), |last| {
            self.any(ANY_OLDER, ListPosition::of(last), self.after)
        })?;
        Ok(page_of(items, older, more))
    }

    fn walk(
        &self,
        sql: &str,
        from: ListPosition,
        bound: i64,
    ) -> Result<(Vec<NumberedRecord>, bool), DbError> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let one_more = jobs::count(self.limit.saturating_add(1));
        let rows = statement.query(params![
            self.account,
            self.kind,
            from.created_at,
            from.number,
            bound,
            one_more
        ])?;
        rows::take_up_to(rows, self.limit, rows::record, |(_, record)| {
            approx_size(record)
        })
    }

    fn any(&self, sql: &str, from: ListPosition, bound: i64) -> Result<bool, DbError> {
        let mut statement = self.conn.prepare_cached(sql)?;
        Ok(statement.exists(params![
            self.account,
            self.kind,
            from.created_at,
            from.number,
            bound,
            1
        ])?)
    }
}
