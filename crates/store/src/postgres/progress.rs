//! Reads the progress of jobs that processes of a cluster follow, and finds those that directors begin.

use jiff::Timestamp;
use tidegate_core::JobId;
use tidegate_core::leases::{BegunAttempts, JobProgress, JobRef};
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::query::{bigint, first, now, rows, text, texts};
use super::rows::{timestamp, unsigned};
use super::text::escape;
use crate::columns;

/// The progress of these jobs, as far as they exist.
pub(super) async fn of_jobs(client: &Client, jobs: &[JobRef]) -> Result<Vec<JobProgress>, PgError> {
    const PROGRESS: &str = "SELECT j.account, j.id, j.status, j.attempt, j.started_at
         FROM unnest($1::text[], $2::text[]) l (account, id)
         JOIN tidegate.jobs j ON j.account = l.account AND j.id = l.id";
    let accounts: Vec<&str> = jobs
        .iter()
        .map(|job| columns::account_text(&job.account))
        .collect();
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    rows(client, PROGRESS, &[texts(&accounts), texts(&ids)])
        .await?
        .iter()
        .map(progress)
        .collect()
}

/// How much the clock of a director may be behind, in microseconds: it says when a job ended.
const CLOCK_DIFFERENCE: i64 = 10_000_000;

/// The jobs of a model that directors have begun. Reads what runs, and what has ended lately.
pub(super) async fn of_begun(
    client: &Client,
    model: &str,
    since: Option<Timestamp>,
) -> Result<BegunAttempts, PgError> {
    const NOW: &str = concat!("SELECT ", now!());
    const BEGUN: &str = "SELECT j.account, j.id, j.status, j.attempt, j.started_at FROM tidegate.jobs j
         WHERE j.completed_at IS NULL AND j.lease_holder IS NOT NULL AND NOT j.lease_expired
           AND j.model = $1 AND j.started_at >= $2
         UNION ALL
         SELECT j.account, j.id, j.status, j.attempt, j.started_at FROM tidegate.jobs j
         WHERE j.completed_at >= $3 AND j.data_removed IN (false, true) AND j.lease_holder IS NOT NULL
           AND j.model = $1 AND j.started_at >= $2";
    let (began, ended) = match since.map(columns::micros) {
        Some(since) => (since, since - CLOCK_DIFFERENCE),
        None => (i64::MIN, i64::MAX),
    };
    let row = first(client, NOW, &[]).await?;
    let row = row.ok_or_else(|| columns::corrupt("the database does not know the time"))?;
    let at = columns::timestamp(row.try_get(0)?)?;
    let model = escape(model);
    let params = [text(&model), bigint(&began), bigint(&ended)];
    let found = rows(client, BEGUN, &params).await?;
    let jobs = found.iter().map(progress).collect::<Result<_, _>>()?;
    Ok(BegunAttempts { at, jobs })
}

fn progress(row: &Row) -> Result<JobProgress, PgError> {
    Ok(JobProgress {
        job: JobRef {
            account: columns::account(row.try_get(0)?)?,
            id: JobId::parse(row.try_get(1)?).map_err(columns::corrupt)?,
        },
        status: columns::status(row.try_get(2)?)?,
        attempt: unsigned(row, 3)?,
        started_at: timestamp(row, 4)?,
    })
}
