//! Interim messages: webhooks about running jobs. A newer one replaces one that was not sent yet, and none
//! is sent after the final message. Each function runs inside a transaction of its caller.

use tidegate_core::leases::HeldLease;
use tidegate_core::outbox::{OutboxMessage, SendOutcome};
use tidegate_core::{Account, JobId};
use tokio_postgres::Client;

use super::error::PgError;
use super::jobs::attempt;
use super::outbox::{RecordedAttempt, receiver_key};
use super::query::{bigint, boolean, bytea, execute, integer, now, text};
use super::text::escape;
use crate::columns;

/// An interim message of a lease.
pub(super) struct InterimMessage {
    pub(super) lease: HeldLease,
    pub(super) message: OutboxMessage,
}

/// An interim message of the job `$1`, `$2` that no server sends now.
macro_rules! is_unsent {
    () => {
        concat!(
            "o.account = $1 AND o.job = $2 AND o.interim AND o.settled_at IS NULL AND (o.holder IS NULL OR o.next_at <= ",
            now!(),
            ")"
        )
    };
}

/// Stores an interim message instead of the previous one; `false` if the lease is not the last one of an
/// open job. One statement: the end of the job comes before all of it or after.
pub(super) async fn put(client: &Client, interim: &InterimMessage) -> Result<bool, PgError> {
    const PUT: &str = concat!(
        "WITH job AS (
             SELECT number FROM tidegate.jobs
             WHERE account = $1 AND id = $2 AND completed_at IS NULL AND attempt = $3 AND lease_nonce = $4 FOR UPDATE),
         previous AS (
             DELETE FROM tidegate.outbox o USING job WHERE ",
        is_unsent!(),
        "),
         message AS (
             INSERT INTO tidegate.outbox (interim, account, job, id, model, receiver, hook, created_at, attempts, retry_until,
                 next_at)
             SELECT true, $1, $2, $5, $6, $7, $8, $9, $10, $11, ",
        now!(),
        " FROM job RETURNING number)
         INSERT INTO tidegate.outbox_bodies (number, body) SELECT number, $12 FROM message"
    );
    let InterimMessage { lease, message } = interim;
    let stored = execute(
        client,
        PUT,
        &[
            text(&columns::account_text(&lease.job.account)),
            text(&lease.job.id.as_str()),
            integer(&attempt(lease.fence.attempt)),
            text(&columns::nonce_text(lease.fence.nonce)),
            text(&escape(&message.id)),
            text(&escape(&message.model)),
            text(&escape(receiver_key(&message.receiver))),
            text(&columns::json_text(&message.hook)?),
            bigint(&columns::micros(message.created_at)),
            integer(&attempt(message.attempts)),
            bigint(&message.retry_until.map(columns::micros)),
            bytea(&&message.body[..]),
        ],
    )
    .await?;
    Ok(stored > 0)
}

/// Deletes the interim message of a job that ends. One that a server sends now is kept: the final message
/// is not taken before its claim ends.
pub(super) async fn remove_unsent(
    client: &Client,
    account: &Account,
    id: &JobId,
) -> Result<(), PgError> {
    const REMOVE: &str = concat!("DELETE FROM tidegate.outbox o WHERE ", is_unsent!());
    execute(
        client,
        REMOVE,
        &[text(&columns::account_text(account)), text(&id.as_str())],
    )
    .await?;
    Ok(())
}

/// Deletes an interim message after an attempt, if it is settled or there is a later message about the job.
pub(super) async fn remove_sent(client: &Client, result: &RecordedAttempt) -> Result<(), PgError> {
    const REMOVE: &str = "DELETE FROM tidegate.outbox o
         WHERE o.id = $1 AND o.interim AND (o.holder = $2 OR $4) AND ($3 OR EXISTS (
             SELECT 1 FROM tidegate.outbox later
             WHERE later.account = o.account AND later.job = o.job AND later.number > o.number))";
    let (is_settled, is_delivered) = match &result.outcome {
        SendOutcome::Retry(_) => (false, false),
        SendOutcome::Settled(settled) => (true, settled.given_up.is_none()),
    };
    execute(
        client,
        REMOVE,
        &[
            text(&escape(&result.id)),
            text(&escape(&result.holder)),
            boolean(&is_settled),
            boolean(&is_delivered),
        ],
    )
    .await?;
    Ok(())
}
