//! Retention: removes the data of old jobs, and deletes old jobs. Rows that another process changes are
//! skipped, so that several processes can do it.

use jiff::Timestamp;
use tokio_postgres::Client;

use super::error::PgError;
use super::query::{bigint, bigints, count, execute, rows};
use crate::columns;

/// The rows are selected first and marked last, in one transaction.
pub(super) async fn remove_data(
    client: &Client,
    over_before: Timestamp,
    limit: usize,
) -> Result<usize, PgError> {
    const CHOSEN: &str = "SELECT number FROM tidegate.jobs
         WHERE completed_at IS NOT NULL AND NOT data_removed AND completed_at < $1
         ORDER BY completed_at LIMIT $2 FOR UPDATE SKIP LOCKED";
    const REMOVALS: [&str; 4] = [
        "DELETE FROM tidegate.inputs WHERE number = ANY ($1)",
        "UPDATE tidegate.ends SET output = NULL, logs = '' WHERE number = ANY ($1)",
        "DELETE FROM tidegate.outbox o USING tidegate.jobs j
         WHERE j.number = ANY ($1) AND o.settled_at IS NOT NULL AND o.job = j.id AND o.account = j.account",
        "UPDATE tidegate.jobs SET data_removed = true WHERE number = ANY ($1)",
    ];
    let chosen: Vec<i64> = rows(
        client,
        CHOSEN,
        &[bigint(&columns::micros(over_before)), bigint(&count(limit))],
    )
    .await?
    .iter()
    .map(|row| row.try_get(0))
    .collect::<Result<_, _>>()?;
    if chosen.is_empty() {
        return Ok(0);
    }
    for removal in REMOVALS {
        execute(client, removal, &[bigints(&chosen)]).await?;
    }
    Ok(chosen.len())
}

pub(super) async fn forget(
    client: &Client,
    over_before: Timestamp,
    limit: usize,
) -> Result<usize, PgError> {
    const MESSAGES: &str = "WITH chosen AS MATERIALIZED (
             SELECT number FROM tidegate.outbox WHERE settled_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)
         DELETE FROM tidegate.outbox o USING chosen WHERE o.number = chosen.number";
    const JOBS: &str = "WITH chosen AS MATERIALIZED (
             SELECT number FROM tidegate.jobs
             WHERE completed_at IS NOT NULL AND completed_at < $1 AND data_removed IN (false, true)
             LIMIT $2 FOR UPDATE SKIP LOCKED)
         DELETE FROM tidegate.jobs j USING chosen WHERE j.number = chosen.number";
    let (over_before, limit) = (columns::micros(over_before), count(limit));
    let params = [bigint(&over_before), bigint(&limit)];
    execute(client, MESSAGES, &params).await?;
    let forgotten = execute(client, JOBS, &params).await?;
    Ok(usize::try_from(forgotten).unwrap_or(usize::MAX))
}
