//! The statements for one job. Each function runs inside a transaction of its caller.

use futures_util::future::join;
use tidegate_core::lease::LeaseRequest;
use tidegate_core::record::{JobRecord, JobSpec};
use tidegate_core::store::{CancelRequestResult, FinishOutcome, JobFinish, OpenJob};
use tidegate_core::{Account, JobId, Status, chain, planted};
use tokio_postgres::Client;

use super::connection::LentConnection;
use super::error::PgError;
use super::query::{
    bigint, boolean, bytea, count, execute, execute_repeated, first, integer, rows, text,
};
use super::rows::{self as records, record_of};
use super::text::escape;
use super::{interim, outbox};
use crate::columns;

/// A new job, and its first lease.
pub(super) struct JobInsert {
    pub(super) spec: JobSpec,
    pub(super) lease: Option<LeaseRequest>,
}

/// Inserts a job. `false`: its account has a job with this id.
pub(super) async fn insert(client: &LentConnection, job: &JobInsert) -> Result<bool, PgError> {
    const INSERT: &str = "WITH job AS (
             INSERT INTO tidegate.jobs (account, id, kind, model, version, deployment, api, hook, context, files, secrets,
                 destination, policies, created_at, deadline, status, attempt, lease_nonce, started_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
             ON CONFLICT (account, id) DO NOTHING RETURNING number)
         INSERT INTO tidegate.inputs (number, json) SELECT number, $20 FROM job";
    let spec = &job.spec;
    let deployment = spec.target.deployment.as_ref().map(ToString::to_string);
    let hook = spec.hook.as_ref().map(columns::json_text).transpose()?;
    let (status, attempt) = match job.lease {
        Some(_) => (Status::Processing, 1),
        None => (Status::Queued, 0),
    };
    let lease_nonce = job
        .lease
        .as_ref()
        .map(|lease| columns::nonce_text(lease.nonce));
    Ok(execute_repeated(
        client,
        INSERT,
        &[
            text(&columns::account_text(&spec.account)),
            text(&spec.id.as_str()),
            text(&columns::kind_text(spec.kind)),
            text(&escape(&spec.target.model)),
            text(&escape(&spec.target.version)),
            text(&deployment.as_deref().map(escape)),
            text(&columns::api_text(spec.api)),
            text(&hook),
            text(&columns::json_text(&spec.context)?),
            text(&columns::json_text(&spec.files)?),
            text(&columns::json_text(&spec.secrets)?),
            text(&spec.destination.as_deref().map(escape)),
            text(&columns::json_text(&spec.policies)?),
            bigint(&columns::micros(spec.created_at)),
            bigint(&spec.deadline.map(columns::micros)),
            text(&columns::status_text(status)),
            integer(&attempt),
            text(&lease_nonce),
            bigint(
                &job.lease
                    .as_ref()
                    .map(|lease| columns::micros(lease.began_at)),
            ),
            bytea(&&spec.input[..]),
        ],
    )
    .await?
        > 0)
}

/// Inserts a job; deletes an ended job with the same id before.
pub(super) async fn replace(client: &LentConnection, job: &JobInsert) -> Result<bool, PgError> {
    // Most ids are new.
    if insert(client, job).await? {
        return Ok(true);
    }
    let (account, id) = (
        columns::account_text(&job.spec.account),
        job.spec.id.as_str(),
    );
    let params = [text(&account), text(&id)];
    let delete = execute(
        client,
        "DELETE FROM tidegate.jobs WHERE account = $1 AND id = $2 AND completed_at IS NOT NULL",
        &params,
    );
    Ok(delete.await? > 0 && insert(client, job).await?)
}

/// Records that a cancel was requested.
pub(super) async fn request_cancel(
    client: &Client,
    account: &Account,
    id: &JobId,
) -> Result<CancelRequestResult, PgError> {
    let (account, id) = (columns::account_text(account), id.as_str());
    let params = [text(&account), text(&id)];
    let recorded = execute(
        client,
        "UPDATE tidegate.jobs SET cancel_requested = true WHERE account = $1 AND id = $2 AND completed_at IS NULL",
        &params,
    )
    .await?;
    if recorded > 0 {
        return Ok(CancelRequestResult::Recorded);
    }
    let known = first(
        client,
        "SELECT 1 FROM tidegate.jobs WHERE account = $1 AND id = $2",
        &params,
    )
    .await?;
    Ok(match known {
        Some(_) => CancelRequestResult::Ended,
        None => CancelRequestResult::Unknown,
    })
}

/// Ends a job, with its message.
pub(super) async fn finish(
    client: &LentConnection,
    finish: &JobFinish,
) -> Result<FinishOutcome, PgError> {
    if !mark_finished(client, finish).await? {
        return why_not_finished(client, finish).await;
    }
    if let Some(message) = &finish.message {
        let removed = interim::remove_unsent(client, &finish.account, &finish.id);
        let (removed, inserted) = join(removed, outbox::insert(client, message)).await;
        removed?;
        inserted?;
    }
    Ok(FinishOutcome::Committed)
}

/// A lease ends its own attempt, also if its holder does not know that it was granted. Without a lease, the
/// last known attempt can be ended.
async fn mark_finished(client: &LentConnection, finish: &JobFinish) -> Result<bool, PgError> {
    const FINISH: &str = "WITH ended AS (
             UPDATE tidegate.jobs SET status = $5, completed_at = $6, attempt = greatest(attempt, $3), end_nonce = $4,
                 started_at = coalesce($7, started_at)
             WHERE account = $1 AND id = $2 AND completed_at IS NULL AND (NOT cancel_requested OR $8)
               AND CASE WHEN $7 IS NULL THEN attempt <= $3 OR lease_nonce = $4 ELSE attempt = $3 AND lease_nonce = $4 END
             RETURNING number)
         INSERT INTO tidegate.ends (number, output, logs, error, metrics, remote)
         SELECT number, $9, $10, $11, $12, $13 FROM ended";
    let statement = FINISH;
    planted!(LeaseWithoutFence, let statement = &*statement.replace("attempt = $3 AND lease_nonce = $4", "true").leak());
    let completion = &finish.completion;
    let remote = completion
        .remote
        .as_ref()
        .map(columns::json_text)
        .transpose()?;
    Ok(execute_repeated(
        client,
        statement,
        &[
            text(&columns::account_text(&finish.account)),
            text(&finish.id.as_str()),
            integer(&attempt(finish.fence.attempt)),
            text(&columns::nonce_text(finish.fence.nonce)),
            text(&columns::status_text(finish.status)),
            bigint(&columns::micros(completion.completed_at)),
            bigint(&finish.began_at.map(columns::micros)),
            boolean(&(finish.status == Status::Canceled)),
            bytea(&completion.output.as_deref()),
            text(&escape(&completion.logs)),
            text(&completion.error.as_deref().map(escape)),
            text(&columns::json_text(&completion.metrics)?),
            text(&remote),
        ],
    )
    .await?
        > 0)
}

async fn why_not_finished(client: &Client, finish: &JobFinish) -> Result<FinishOutcome, PgError> {
    let found = first(
        client,
        "SELECT completed_at IS NOT NULL, coalesce(end_nonce = $3, false), cancel_requested FROM tidegate.jobs
         WHERE account = $1 AND id = $2",
        &[
            text(&columns::account_text(&finish.account)),
            text(&finish.id.as_str()),
            text(&columns::nonce_text(finish.fence.nonce)),
        ],
    )
    .await?;
    let Some(row) = found else {
        return Ok(FinishOutcome::ByAnother);
    };
    Ok(match (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?) {
        (true, true, _) => FinishOutcome::AlreadyCommitted,
        (false, _, true) if finish.status != Status::Canceled => FinishOutcome::CancelRequested,
        (_, _, _) => FinishOutcome::ByAnother,
    })
}

/// One job.
pub(super) async fn get(
    client: &Client,
    account: &Account,
    id: &JobId,
) -> Result<Option<JobRecord>, PgError> {
    let sql = record_of!("tidegate.jobs j", "WHERE j.account = $1 AND j.id = $2");
    let row = first(
        client,
        sql,
        &[text(&columns::account_text(account)), text(&id.as_str())],
    )
    .await?;
    Ok(row
        .map(|row| records::record(&row))
        .transpose()?
        .map(|(_, record)| record))
}

/// Open jobs with numbers above `after`, of one model or of all.
pub(super) async fn open(
    client: &Client,
    after: u64,
    limit: usize,
    model: Option<&str>,
) -> Result<Vec<OpenJob>, PgError> {
    const OPEN: &str = record_of!(without_input
        "tidegate.jobs j",
        "WHERE j.completed_at IS NULL AND j.number > $1 AND ($3::text IS NULL OR j.model = $3)
         ORDER BY j.number LIMIT $2"
    );
    let mut after = i64::try_from(after).unwrap_or(i64::MAX);
    let (limit, model) = (count(limit), model.map(escape));
    loop {
        let params = [bigint(&after), bigint(&limit), text(&model)];
        let found = rows(client, OPEN, &params).await?;
        let readable = found.iter().map(records::open_job).filter(|job| match job {
            Err(error @ PgError::Corrupt(_)) => {
                tracing::error!(error = %chain(error), "failed to read open job, skipped it");
                false
            }
            Ok(_) | Err(_) => true,
        });
        let jobs = readable.collect::<Result<Vec<_>, _>>()?;
        match found.last() {
            // Others may follow: an empty result means that there are none.
            Some(last) if jobs.is_empty() => after = last.try_get(0)?,
            Some(_) | None => return Ok(jobs),
        }
    }
}

/// The number of an attempt as an `integer`.
pub(super) fn attempt(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
