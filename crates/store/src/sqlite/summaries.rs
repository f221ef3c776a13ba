//! Summaries of jobs of all accounts, for operators. Inputs and outputs are not read.

use rusqlite::{Connection, Row, params};
use tidegate_core::JobId;
use tidegate_core::record::{JobSummary, Target};
use tidegate_core::store::JobFilter;

use super::error::DbError;
use super::jobs;
use crate::columns;

/// NULL matches everything. The statuses are separated and surrounded by commas.
const FILTERED: &str = "SELECT id, account, kind, model, version, deployment, face, status, created_at, started_at, completed_at,
       CASE status WHEN 'failed' THEN (SELECT substr(error, 1, ?7) FROM endings WHERE endings.number = jobs.number) END
     FROM jobs
     WHERE (?1 IS NULL OR account = ?1) AND (?2 IS NULL OR id = ?2)
       AND (?6 IS NULL OR substr(id, 1, length(?6)) = ?6) AND (?3 IS NULL OR model = ?3)
       AND (?8 IS NULL OR deployment = ?8 OR substr(deployment, 1, length(?8) + 1) = ?8 || '#')
       AND (?4 = ',' OR instr(?4, ',' || status || ',') > 0)
       AND (?9 IS NULL OR created_at <= ?9)";
/// Lets the index of open jobs be used: they may be few among many.
const OPEN: &str = " AND completed_at IS NULL";
const NEWEST_FIRST: &str = " ORDER BY number DESC LIMIT ?5";

pub(super) fn recent(conn: &Connection, filter: &JobFilter) -> Result<Vec<JobSummary>, DbError> {
    let statuses = filter.statuses.iter().fold(",".to_owned(), |all, status| {
        all + columns::status_text(*status) + ","
    });
    let account = filter.account.as_ref().map(columns::account_text);
    let id = filter.id.as_ref().map(JobId::as_str);
    let open = if filter.is_open_only() { OPEN } else { "" };
    let mut statement = conn.prepare_cached(&[FILTERED, open, NEWEST_FIRST].concat())?;
    let mut found = statement.query(params![
        account,
        id,
        filter.model,
        statuses,
        jobs::count(filter.limit),
        filter.id_prefix,
        jobs::count(JobSummary::MAX_ERROR),
        filter.deployment,
        filter.created_until.map(columns::micros),
    ])?;
    let mut summaries = Vec::new();
    while let Some(row) = found.next()? {
        summaries.push(summary(row)?);
    }
    Ok(summaries)
}

fn summary(row: &Row<'_>) -> Result<JobSummary, DbError> {
    let timestamp = |column| -> Result<_, DbError> {
        let value: Option<i64> = row.get(column)?;
        Ok(value.map(columns::timestamp).transpose()?)
    };
    Ok(JobSummary {
        id: JobId::parse(&row.get::<_, String>(0)?).map_err(columns::corrupt)?,
        account: columns::account(&row.get::<_, String>(1)?)?,
        kind: columns::kind(&row.get::<_, String>(2)?)?,
        target: Target {
            model: row.get(3)?,
            version: row.get(4)?,
            deployment: columns::deployment_ref(row.get(5)?),
        },
        api: columns::api(&row.get::<_, String>(6)?)?,
        status: columns::status(&row.get::<_, String>(7)?)?,
        created_at: columns::timestamp(row.get(8)?)?,
        started_at: timestamp(9)?,
        completed_at: timestamp(10)?,
        error: row.get(11)?,
    })
}
