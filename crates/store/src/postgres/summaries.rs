//! Summaries of jobs of all accounts, for operators. Inputs and outputs are not read.

use tidegate_core::JobId;
use tidegate_core::record::JobSummary;
use tidegate_core::store::JobFilter;
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::query::{bigint, count, integer, rows, text, texts};
use super::rows as records;
use super::text::escape;
use crate::columns;

/// NULL matches everything. An escaped character counts as two, so twice the length of the error is read.
const FILTERED: &str = "SELECT id, account, kind, model, version, deployment, api, status, created_at, started_at, completed_at,
       CASE status WHEN 'failed' THEN (SELECT left(error, $7) FROM tidegate.ends e WHERE e.number = j.number) END
     FROM tidegate.jobs j
     WHERE ($1::text IS NULL OR account = $1) AND ($2::text IS NULL OR id = $2)
       AND ($6::text IS NULL OR starts_with(id, $6)) AND ($3::text IS NULL OR model = $3)
       AND ($8::text IS NULL OR deployment = $8 OR starts_with(deployment, $8 || '#'))
       AND (cardinality($4) = 0 OR status = ANY ($4))
       AND ($9::bigint IS NULL OR created_at <= $9)";
/// Lets the index of open jobs be used: they may be few among many.
const OPEN: &str = " AND completed_at IS NULL";
const NEWEST_FIRST: &str = " ORDER BY number DESC LIMIT $5";

pub(super) async fn recent(
    client: &Client,
    filter: &JobFilter,
) -> Result<Vec<JobSummary>, PgError> {
    let statuses: Vec<&str> = filter
        .statuses
        .iter()
        .map(|status| columns::status_text(*status))
        .collect();
    let max_error = i32::try_from(2 * JobSummary::MAX_ERROR).unwrap_or(i32::MAX);
    let open = if filter.is_open_only() { OPEN } else { "" };
    let found = rows(
        client,
        &[FILTERED, open, NEWEST_FIRST].concat(),
        &[
            text(&filter.account.as_ref().map(columns::account_text)),
            text(&filter.id.as_ref().map(JobId::as_str)),
            text(&filter.model.as_deref().map(escape)),
            texts(&statuses),
            bigint(&count(filter.limit)),
            text(&filter.id_prefix.as_deref().map(escape)),
            integer(&max_error),
            text(&filter.deployment.as_deref().map(escape)),
            bigint(&filter.created_until.map(columns::micros)),
        ],
    )
    .await?;
    found.iter().map(summary).collect()
}

fn summary(row: &Row) -> Result<JobSummary, PgError> {
    let error = records::optional_text(row, 11)?;
    Ok(JobSummary {
        id: JobId::parse(row.try_get(0)?).map_err(columns::corrupt)?,
        account: columns::account(row.try_get(1)?)?,
        kind: columns::kind(row.try_get(2)?)?,
        target: records::target(row, 3)?,
        api: columns::api(row.try_get(6)?)?,
        status: columns::status(row.try_get(7)?)?,
        created_at: columns::timestamp(row.try_get(8)?)?,
        started_at: records::timestamp(row, 9)?,
        completed_at: records::timestamp(row, 10)?,
        error: error.map(|error| error.chars().take(JobSummary::MAX_ERROR).collect()),
    })
}
