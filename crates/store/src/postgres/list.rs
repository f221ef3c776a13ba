//! Lists of an account's jobs, newest first, in both directions.

use tidegate_core::record::JobRecord;
use tidegate_core::store::{JobQuery, Page};
use tokio_postgres::Client;

use super::error::PgError;
use super::query::{Param, bigint, count, first, rows, text};
use super::rows::{self as records, record_of};
use crate::columns;
use crate::cursor::{ListPosition, NumberedRecord, PageCursor, page_of};
use crate::records::MAX_RESULT_BYTES;

// Both directions use the index `jobs_listed`.
macro_rules! older {
    () => {
        "WHERE o.account = $1 AND o.kind = $2 AND (o.created_at, o.number) < ($3, $4) AND o.created_at >= $5
         ORDER BY o.created_at DESC, o.number DESC LIMIT $6"
    };
}
macro_rules! newer {
    () => {
        "WHERE o.account = $1 AND o.kind = $2 AND (o.created_at, o.number) > ($3, $4) AND o.created_at < $5
         ORDER BY o.created_at, o.number LIMIT $6"
    };
}
/// The jobs of a page. The first column of the inner query is the position in the page, so that the page
/// ends after a number of bytes; the last row of `chosen` tells whether there is another page.
macro_rules! page {
    ($conditions:expr, $order:literal) => {
        record_of!(
            concat!(
                "(SELECT number, sum(size) OVER w - size AS preceding, row_number() OVER w AS place
                  FROM (SELECT o.number, o.created_at, coalesce(octet_length(b.json), 0)
                               + coalesce(octet_length(d.output), 0) + coalesce(octet_length(d.logs), 0) AS size
                        FROM tidegate.jobs o LEFT JOIN tidegate.inputs b ON b.number = o.number
                        LEFT JOIN tidegate.ends d ON d.number = o.number ",
                $conditions,
                ") s WINDOW w AS (ORDER BY created_at ",
                $order,
                ", number ",
                $order,
                ")) c JOIN tidegate.jobs j ON j.number = c.number"
            ),
            "WHERE c.preceding < $7 AND c.place < $6 ORDER BY c.place"
        )
    };
}
const OLDER: &str = page!(older!(), "DESC");
const NEWER: &str = page!(newer!(), "ASC");
const ANY_OLDER: &str = concat!("SELECT 1 FROM tidegate.jobs o ", older!());
const ANY_NEWER: &str = concat!("SELECT 1 FROM tidegate.jobs o ", newer!());

/// One page. `client` must be in a transaction that reads one state of the database.
pub(super) async fn page(client: &Client, query: &JobQuery) -> Result<Page<JobRecord>, PgError> {
    let list = ListQuery::of(client, query);
    let way = match &query.from {
        None => Some(PageCursor::Older(ListPosition::NEWEST)),
        Some(cursor) => PageCursor::parse(cursor),
    };
    match way {
        Some(PageCursor::Older(from)) => list.older(from).await,
        Some(PageCursor::Newer(from)) => list.newer(from).await,
        None => Ok(page_of(Vec::new(), false, false)),
    }
}

/// A list query with its bounds.
struct ListQuery<'a> {
    client: &'a Client,
    account: &'a str,
    kind: &'static str,
    /// The first timestamp in the list.
    after: i64,
    /// The first timestamp after the list.
    before: i64,
    limit: usize,
}

impl<'a> ListQuery<'a> {
    fn of(client: &'a Client, query: &'a JobQuery) -> Self {
        Self {
            client,
            account: columns::account_text(&query.account),
            kind: columns::kind_text(query.kind),
            after: query.created_after.map_or(i64::MIN, columns::micros),
            before: query.created_before.map_or(i64::MAX, columns::micros),
            limit: query.limit,
        }
    }

    async fn older(&self, from: ListPosition) -> Result<Page<JobRecord>, PgError> {
        let from = from.min(ListPosition {
            created_at: self.before,
            number: i64::MIN,
        });
        let items = self.walk(OLDER, from, self.after).await?;
        // A page may be shorter than its limit because its jobs are large.
        let older = self.any(ANY_OLDER, items.last(), self.after).await?;
        let newer = self.any(ANY_NEWER, items.first(), self.before).await?;
        Ok(page_of(items, older, newer))
    }

    async fn newer(&self, from: ListPosition) -> Result<Page<JobRecord>, PgError> {
        let from = from.max(ListPosition {
            created_at: self.after,
            number: i64::MIN,
        });
        let mut items = self.walk(NEWER, from, self.before).await?;
        items.reverse();
        let older = self.any(ANY_OLDER, items.last(), self.after).await?;
        let newer = self.any(ANY_NEWER, items.first(), self.before).await?;
        Ok(page_of(items, older, newer))
    }

    async fn walk(
        &self,
        sql: &str,
        from: ListPosition,
        bound: i64,
    ) -> Result<Vec<NumberedRecord>, PgError> {
        let (limit, max_bytes) = (count(self.limit.saturating_add(1)), count(MAX_RESULT_BYTES));
        let mut params = self.params(&from, &bound, &limit).to_vec();
        params.push(bigint(&max_bytes));
        rows(self.client, sql, &params)
            .await?
            .iter()
            .map(records::record)
            .collect()
    }

    /// Whether there are jobs beyond this one.
    async fn any(
        &self,
        sql: &str,
        beyond: Option<&NumberedRecord>,
        bound: i64,
    ) -> Result<bool, PgError> {
        let Some(from) = beyond.map(ListPosition::of) else {
            return Ok(false);
        };
        let params = self.params(&from, &bound, &1_i64).to_vec();
        Ok(first(self.client, sql, &params).await?.is_some())
    }

    fn params<'p>(
        &'p self,
        from: &'p ListPosition,
        bound: &'p i64,
        limit: &'p i64,
    ) -> [Param<'p>; 6] {
        [
            text(&self.account),
            text(&self.kind),
            bigint(&from.created_at),
            bigint(&from.number),
            bigint(bound),
            bigint(limit),
        ]
    }
}
