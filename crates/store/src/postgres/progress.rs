//! Reads the progress of jobs that processes of a cluster follow.

use tidegate_core::JobId;
use tidegate_core::leases::{JobProgress, JobRef};
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::query::{rows, texts};
use super::rows::{timestamp, unsigned};
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
