//! The attempts of a job.

use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::{Account, JobId};
use tokio_postgres::Client;

use super::error::PgError;
use super::query::{first, text};
use super::rows;
use crate::attempts::AttemptColumns;
use crate::columns;

/// The earlier attempts of the job `j`, and its last one, which ended so at this time. For statements that
/// overwrite the last attempt: at the first attempt it is the value of a column, without any work. Has to
/// keep at most [`MAX_EARLIER_ATTEMPTS`](tidegate_core::job_attempt::MAX_EARLIER_ATTEMPTS).
macro_rules! with_last_attempt {
    ($end:literal, $ended_at:expr) => {
        concat!(
            "CASE WHEN j.started_at IS NULL THEN j.earlier_attempts ELSE
                 CASE WHEN jsonb_array_length(j.earlier_attempts) >= 50 THEN j.earlier_attempts - 0
                      ELSE coalesce(j.earlier_attempts, '[]') END
                 || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('number', j.attempt, 'started_at', j.started_at,
                        'ended_at', greatest(j.started_at, ", $ended_at, "), 'end', '", $end, "', 'director', j.lease_holder)))
             END"
        )
    };
}
pub(super) use with_last_attempt;

/// When the last lease of the job `j` was found to have expired; NULL if it was not.
macro_rules! expired_at {
    () => {
        "CASE WHEN j.lease_expired AND j.lease_expired_at >= j.started_at THEN j.lease_expired_at END"
    };
}
pub(super) use expired_at;

/// The attempts of a job, oldest first.
pub(super) async fn of_job(
    client: &Client,
    account: &Account,
    id: &JobId,
) -> Result<Vec<JobAttempt>, PgError> {
    const READ: &str = concat!(
        "SELECT j.attempt, j.status, j.started_at, j.completed_at, j.lease_holder, j.earlier_attempts::text, ",
        expired_at!(),
        " FROM tidegate.jobs j WHERE j.account = $1 AND j.id = $2"
    );
    let found = first(
        client,
        READ,
        &[text(&columns::account_text(account)), text(&id.as_str())],
    )
    .await?;
    let Some(row) = found else {
        return Ok(Vec::new());
    };
    let columns = AttemptColumns {
        attempt: rows::unsigned(&row, 0)?,
        status: columns::status(row.try_get(1)?)?,
        started_at: rows::timestamp(&row, 2)?,
        completed_at: rows::timestamp(&row, 3)?,
        director: rows::optional_text(&row, 4)?,
        earlier: rows::optional_text(&row, 5)?,
        expired_at: rows::timestamp(&row, 6)?,
    };
    Ok(columns.list()?)
}
