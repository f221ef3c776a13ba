//! Finds jobs that no director runs: expired leases, and jobs that are not in the queue. Each function runs
//! inside a transaction of its caller.

use std::time::Duration;

use tidegate_core::leases::JobRef;
use tokio_postgres::Client;

use super::error::PgError;
use super::query::{
    bigint, bigints, count, do_not_sync, execute, first, is_live, micros, now, rows, texts,
};
use super::queue_epoch;
use super::rows::{self as records, record_of};
use crate::columns;
use crate::cursor::NumberedRecord;

/// The most jobs of one transaction that changes all.
const PART: i64 = 1000;

/// Moves the pulse. If the cluster did not run for more than half of `lasts`, the holders that lived before
/// get `lasts` more.
pub(super) async fn move_pulse(client: &Client, lasts: Duration) -> Result<(), PgError> {
    const EXTEND: &str = concat!(
        "WITH clock AS MATERIALIZED (SELECT ",
        now!(),
        " AS now), previous AS MATERIALIZED (SELECT at FROM tidegate.pulse FOR UPDATE)
         UPDATE tidegate.holders h SET alive_until = greatest(h.alive_until, clock.now + $1)
         FROM clock, previous
         WHERE h.alive_until > previous.at AND clock.now - previous.at > $1 / 2"
    );
    const MOVE: &str = concat!("UPDATE tidegate.pulse SET at = greatest(at, ", now!(), ")");
    execute(client, EXTEND, &[bigint(&micros(lasts))]).await?;
    execute(client, MOVE, &[]).await?;
    Ok(())
}

/// Marks open jobs whose lease is not live any more; returns their numbers. Each lease is returned once:
/// from then on its job counts as not queued.
pub(super) async fn expire(client: &Client, limit: usize) -> Result<Vec<i64>, PgError> {
    const EXPIRE: &str = concat!(
        "WITH chosen AS MATERIALIZED (
             SELECT j.number FROM tidegate.jobs j
             WHERE j.completed_at IS NULL AND j.lease_holder IS NOT NULL AND NOT j.lease_expired AND NOT ",
        is_live!(),
        " ORDER BY j.number LIMIT $1 FOR UPDATE OF j SKIP LOCKED)
         UPDATE tidegate.jobs j SET lease_expired = true, queued = false, waiting_since = ",
        now!(),
        ", lease_expired_at = ",
        now!(),
        " FROM chosen WHERE j.number = chosen.number RETURNING j.number"
    );
    let found = rows(client, EXPIRE, &[bigint(&count(limit))]).await?;
    Ok(found
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}

/// The records of these jobs that are open, oldest first.
pub(super) async fn open_records(
    client: &Client,
    numbers: &[i64],
) -> Result<Vec<NumberedRecord>, PgError> {
    const RECORDS: &str = record_of!(
        "tidegate.jobs j",
        "WHERE j.number = ANY ($1) AND j.completed_at IS NULL ORDER BY j.number"
    );
    rows(client, RECORDS, &[bigints(&numbers)])
        .await?
        .iter()
        .map(records::record)
        .collect()
}

/// Records that jobs are in the queue, unless another epoch of the queue is recorded. Rows are locked in the
/// order of their keys.
pub(super) async fn mark_queued(
    client: &Client,
    jobs: &[JobRef],
    epoch: &str,
) -> Result<(), PgError> {
    const MARK: &str = "WITH chosen AS MATERIALIZED (
             SELECT j.number FROM tidegate.jobs j
             JOIN unnest($1::text[], $2::text[]) l (account, id) ON j.account = l.account AND j.id = l.id
             WHERE j.completed_at IS NULL AND NOT j.queued ORDER BY j.account, j.id FOR UPDATE OF j)
         UPDATE tidegate.jobs j SET queued = true FROM chosen WHERE j.number = chosen.number";
    if !queue_epoch::holds(client, epoch).await? {
        return Ok(());
    }
    let accounts: Vec<&str> = jobs
        .iter()
        .map(|job| columns::account_text(&job.account))
        .collect();
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    // If the mark is lost, the job is put into the queue a second time.
    do_not_sync(client).await?;
    execute(client, MARK, &[texts(&accounts), texts(&ids)]).await?;
    Ok(())
}

/// Records for some jobs after the number `after` that they are not in the queue; returns the last number.
pub(super) async fn mark_unqueued_after(
    client: &Client,
    after: i64,
) -> Result<Option<i64>, PgError> {
    const MARK: &str = "WITH chosen AS MATERIALIZED (
             SELECT number FROM tidegate.jobs WHERE completed_at IS NULL AND queued AND number > $1
             ORDER BY number LIMIT $2 FOR UPDATE),
         marked AS (UPDATE tidegate.jobs j SET queued = false FROM chosen WHERE j.number = chosen.number)
         SELECT max(number) FROM chosen";
    let row = first(client, MARK, &[bigint(&after), bigint(&PART)]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}

/// Records of jobs that have waited for `age` without another look at them that they are not known to be in the
/// queue; returns how many there were.
pub(super) async fn unmark_queued(
    client: &Client,
    age: Duration,
    limit: usize,
) -> Result<usize, PgError> {
    const UNMARK: &str = concat!(
        "WITH chosen AS MATERIALIZED (
             SELECT j.number FROM tidegate.jobs j
             WHERE j.completed_at IS NULL AND j.queued AND j.waiting_since <= ",
        now!(),
        " - $1 AND NOT ",
        is_live!(),
        " ORDER BY j.number LIMIT $2 FOR UPDATE OF j SKIP LOCKED)
         UPDATE tidegate.jobs j SET queued = false, waiting_since = ",
        now!(),
        " FROM chosen WHERE j.number = chosen.number"
    );
    // If this is lost, it is done again.
    do_not_sync(client).await?;
    let (age, limit) = (micros(age), count(limit));
    let unmarked = execute(client, UNMARK, &[bigint(&age), bigint(&limit)]).await?;
    Ok(unmarked as usize)
}

/// Chooses open jobs without a live lease that are not known to be in the queue; returns their numbers. They
/// are not chosen again within `age`, by any process.
pub(super) async fn claim_unqueued(
    client: &Client,
    age: Duration,
    limit: usize,
) -> Result<Vec<i64>, PgError> {
    const CLAIM: &str = concat!(
        "WITH chosen AS MATERIALIZED (
             SELECT j.number FROM tidegate.jobs j
             WHERE j.completed_at IS NULL AND NOT j.queued AND j.waiting_since <= ",
        now!(),
        " - $1 AND NOT ",
        is_live!(),
        " ORDER BY j.number LIMIT $2 FOR UPDATE OF j SKIP LOCKED)
         UPDATE tidegate.jobs j SET waiting_since = ",
        now!(),
        " FROM chosen WHERE j.number = chosen.number RETURNING j.number"
    );
    // If the claim is lost, the job is put into the queue a second time.
    do_not_sync(client).await?;
    let found = rows(
        client,
        CLAIM,
        &[bigint(&micros(age)), bigint(&count(limit))],
    )
    .await?;
    Ok(found
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}
