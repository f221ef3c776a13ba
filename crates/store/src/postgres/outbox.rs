//! Outbox messages: the webhooks about jobs, until they are delivered or given up, and for a while after
//! that. Claiming messages is in `outbox_take.rs`, messages about running jobs are in `interim.rs`.

use std::time::Duration;

use futures_util::future::join;
use tidegate_core::outbox::{
    MessageFilter, MessageState, MessageSummary, OutboxCounts, OutboxMessage, Reopened,
    SendOutcome, Settlement,
};
use tidegate_core::record::WebhookSpec;
use tidegate_core::{Account, JobId};
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::jobs::attempt;
use super::query::{
    bigint, bytea, count, execute, first, integer, micros, now, rows, text, unsigned,
};
use super::text::escape;
use super::{interim, rows as records};
use crate::columns;

/// The longest key of a receiver, in bytes: an entry of an index is limited.
const MAX_RECEIVER: usize = 1000;

/// The name under which messages to a receiver are grouped.
pub(super) fn receiver_key(receiver: &str) -> &str {
    &receiver[..receiver.floor_char_boundary(MAX_RECEIVER)]
}

/// Stores a message.
pub(super) async fn insert(client: &Client, message: &OutboxMessage) -> Result<(), PgError> {
    const INSERT: &str = concat!(
        "WITH message AS (
             INSERT INTO tidegate.outbox (id, account, job, model, receiver, hook, created_at, attempts, retry_until,
                 holder, next_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, ",
        now!(),
        " + $11) RETURNING number)
         INSERT INTO tidegate.outbox_bodies (number, body) SELECT number, $12 FROM message"
    );
    let claim = message.claim.as_ref();
    execute(
        client,
        INSERT,
        &[
            text(&escape(&message.id)),
            text(&columns::account_text(&message.account)),
            text(&message.job.as_str()),
            text(&escape(&message.model)),
            text(&escape(receiver_key(&message.receiver))),
            text(&columns::json_text(&message.hook)?),
            bigint(&columns::micros(message.created_at)),
            integer(&attempt(message.attempts)),
            bigint(&message.retry_until.map(columns::micros)),
            text(&claim.map(|claim| escape(&claim.holder))),
            bigint(&micros(claim.map_or(Duration::ZERO, |claim| claim.lasts))),
            bytea(&&message.body[..]),
        ],
    )
    .await?;
    Ok(())
}

/// The result of one attempt to send a message.
pub(super) struct RecordedAttempt {
    pub(super) id: String,
    pub(super) holder: String,
    pub(super) outcome: SendOutcome,
}

/// Records the result of one attempt.
pub(super) async fn record_attempt(
    client: &Client,
    result: &RecordedAttempt,
) -> Result<(), PgError> {
    const RETRY: &str = concat!(
        "UPDATE tidegate.outbox SET attempts = attempts + 1, next_at = ",
        now!(),
        " + $3, holder = NULL WHERE id = $1 AND settled_at IS NULL AND holder = $2"
    );
    const SETTLE: &str = "UPDATE tidegate.outbox SET attempts = attempts + 1, settled_at = $3, given_up = $4, holder = NULL
         WHERE id = $1 AND settled_at IS NULL AND ($4 IS NULL OR holder = $2)";
    let (id, holder) = (escape(&result.id), escape(&result.holder));
    let removed = interim::remove_sent(client, result);
    let recorded = async {
        match &result.outcome {
            SendOutcome::Retry(pause) => {
                let pause = micros(*pause);
                execute(client, RETRY, &[text(&id), text(&holder), bigint(&pause)]).await
            }
            SendOutcome::Settled(settled) => {
                execute(
                    client,
                    SETTLE,
                    &[
                        text(&id),
                        text(&holder),
                        bigint(&columns::micros(settled.at)),
                        text(&settled.given_up.as_deref().map(escape)),
                    ],
                )
                .await
            }
        }
    };
    let (removed, recorded) = join(removed, recorded).await;
    removed?;
    recorded?;
    Ok(())
}

/// Ends a claim without an attempt.
pub(super) async fn release(client: &Client, id: &str, holder: &str) -> Result<(), PgError> {
    const RELEASE: &str = concat!(
        "UPDATE tidegate.outbox SET next_at = ",
        now!(),
        ", holder = NULL WHERE id = $1 AND holder = $2"
    );
    execute(client, RELEASE, &[text(&escape(id)), text(&escape(holder))]).await?;
    Ok(())
}

/// Ends all claims: their holders have exited, because this process has the lock of the database.
pub(super) async fn release_all(client: &Client) -> Result<(), PgError> {
    const RELEASE_ALL: &str = concat!(
        "UPDATE tidegate.outbox SET next_at = ",
        now!(),
        ", holder = NULL WHERE holder IS NOT NULL AND settled_at IS NULL"
    );
    execute(client, RELEASE_ALL, &[]).await?;
    Ok(())
}

/// Messages without their bodies.
pub(super) async fn list(
    client: &Client,
    filter: &MessageFilter,
) -> Result<Vec<MessageSummary>, PgError> {
    let account = filter.account.as_ref().map(columns::account_text);
    let job = filter.job.as_ref().map(JobId::as_str);
    let limit = count(filter.limit);
    let mut summaries = Vec::new();
    for rest in [
        "settled_at IS NULL ORDER BY created_at DESC, number DESC",
        "settled_at IS NOT NULL ORDER BY settled_at DESC, number DESC",
    ] {
        let sql = format!(
            "SELECT id, account, job, model, hook, created_at, attempts, next_at, holder IS NOT NULL, settled_at, given_up
             FROM tidegate.outbox
             WHERE ($1::text IS NULL OR account = $1) AND ($2::text IS NULL OR job = $2) AND {rest} LIMIT $3"
        );
        let params = [text(&account), text(&job), bigint(&limit)];
        for row in rows(client, &sql, &params).await? {
            summaries.push(summary(&row)?);
        }
    }
    Ok(summaries)
}

fn summary(row: &Row) -> Result<MessageSummary, PgError> {
    let (is_claimed, settled_at) = (row.try_get(8)?, records::timestamp(row, 9)?);
    let state = match (settled_at, is_claimed) {
        (Some(at), _) => MessageState::Settled(Settlement {
            at,
            given_up: records::optional_text(row, 10)?,
        }),
        (None, true) => MessageState::Claimed,
        (None, false) => MessageState::Waiting(columns::timestamp(row.try_get(7)?)?),
    };
    Ok(MessageSummary {
        id: records::text(row, 0)?,
        account: columns::account(row.try_get(1)?)?,
        job: JobId::parse(row.try_get(2)?).map_err(columns::corrupt)?,
        model: records::text(row, 3)?,
        url: columns::json::<WebhookSpec>(row.try_get(4)?)?.url,
        created_at: columns::timestamp(row.try_get(5)?)?,
        attempts: records::unsigned(row, 6)?,
        state,
    })
}

/// The number of messages that are not settled.
pub(super) async fn counts(client: &Client) -> Result<OutboxCounts, PgError> {
    let pending = first(
        client,
        "SELECT count(*) FROM tidegate.outbox WHERE settled_at IS NULL",
        &[],
    )
    .await?;
    let retrying = rows(
        client,
        "SELECT model, count(*) FROM tidegate.outbox WHERE settled_at IS NULL AND attempts > 0 GROUP BY model",
        &[],
    )
    .await?;
    Ok(OutboxCounts {
        pending: pending
            .map(|row| row.try_get(0))
            .transpose()?
            .map_or(0, unsigned),
        retrying: retrying
            .iter()
            .map(|row| Ok((records::text(row, 0)?, unsigned(row.try_get(1)?))))
            .collect::<Result<_, PgError>>()?,
    })
}

/// Makes a message due at once.
pub(super) async fn reopen(
    client: &Client,
    id: &str,
    account: Option<&Account>,
    window: Duration,
) -> Result<Reopened, PgError> {
    const FIND: &str = concat!(
        "SELECT holder IS NOT NULL AND next_at > ",
        now!(),
        " AND settled_at IS NULL FROM tidegate.outbox
         WHERE id = $1 AND ($2::text IS NULL OR account = $2) FOR UPDATE"
    );
    const REOPEN: &str = concat!(
        "UPDATE tidegate.outbox SET holder = NULL, settled_at = NULL, given_up = NULL, next_at = ",
        now!(),
        ", retry_until = CASE WHEN settled_at IS NULL THEN retry_until ELSE ",
        now!(),
        " + $2 END WHERE id = $1"
    );
    let id = escape(id);
    let found = first(
        client,
        FIND,
        &[text(&id), text(&account.map(columns::account_text))],
    )
    .await?;
    match found.map(|row| row.try_get(0)).transpose()? {
        None => Ok(Reopened::Unknown),
        Some(true) => Ok(Reopened::Claimed),
        Some(false) => {
            execute(client, REOPEN, &[text(&id), bigint(&micros(window))]).await?;
            Ok(Reopened::Due)
        }
    }
}
