//! The life of directors and of their leases. Each function runs inside a transaction of its caller.

use std::time::Duration;

use tidegate_core::JobId;
use tidegate_core::lease::Fence;
use tidegate_core::leases::{HeartbeatResult, HeldLease, Holder, JobRef, LeaseHeartbeat};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::acquire::boot;
use super::attempts::with_last_attempt;
use super::error::PgError;
use super::jobs::attempt;
use super::query::{
    bigint, do_not_sync, execute, first, integer, is_live, micros, now, rows, text, texts,
};
use super::rows as records;
use super::text::escape;
use crate::columns;

/// Keeps a director and its leases alive.
pub(super) async fn beat(
    client: &Client,
    beat: &LeaseHeartbeat,
) -> Result<HeartbeatResult, PgError> {
    do_not_sync(client).await?;
    if !keep_alive(client, &beat.holder, beat.lasts).await? {
        return Ok(HeartbeatResult {
            is_superseded: true,
            ..HeartbeatResult::default()
        });
    }
    let result = check_leases(client, &beat.leases).await?;
    Ok(HeartbeatResult {
        unlisted: unlisted(client, beat).await?,
        ..result
    })
}

/// The leases of the holder that the heartbeat does not list.
async fn unlisted(client: &Client, beat: &LeaseHeartbeat) -> Result<Vec<HeldLease>, PgError> {
    const HELD: &str = "SELECT j.account, j.id, j.attempt, j.lease_nonce FROM tidegate.jobs j
         WHERE j.lease_holder = $1 AND j.lease_boot = $2 AND j.completed_at IS NULL AND NOT j.lease_expired";
    let (name, boot) = (escape(&beat.holder.name), boot(&beat.holder));
    let params = [text(&name), bigint(&boot)];
    let mut unlisted = Vec::new();
    for row in rows(client, HELD, &params).await? {
        let lease = held_lease(&row)?;
        if !beat.leases.contains(&lease) {
            unlisted.push(lease);
        }
    }
    Ok(unlisted)
}

/// Keeps a holder alive; `false` if a process with the same name has started later.
pub(super) async fn keep_alive(
    client: &Client,
    holder: &Holder,
    lasts: Duration,
) -> Result<bool, PgError> {
    const KEEP: &str = concat!(
        "INSERT INTO tidegate.holders AS h (name, boot, alive_until) VALUES ($1, $2, ",
        now!(),
        " + $3)
         ON CONFLICT (name) DO UPDATE SET boot = excluded.boot, alive_until = excluded.alive_until
         WHERE h.boot <= excluded.boot RETURNING 1"
    );
    let kept = first(
        client,
        KEEP,
        &[
            text(&escape(&holder.name)),
            bigint(&boot(holder)),
            bigint(&micros(lasts)),
        ],
    )
    .await?;
    Ok(kept.is_some())
}

/// Which of these leases are lost, and which jobs must be canceled.
async fn check_leases(client: &Client, leases: &[HeldLease]) -> Result<HeartbeatResult, PgError> {
    const CHECK: &str = "SELECT (l.place - 1)::integer,
             j.number IS NULL OR j.completed_at IS NOT NULL OR j.attempt <> l.attempt OR j.lease_nonce IS DISTINCT FROM l.nonce
         FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[]) WITH ORDINALITY l (account, id, attempt, nonce, place)
         LEFT JOIN tidegate.jobs j ON j.account = l.account AND j.id = l.id
         WHERE j.number IS NULL OR j.completed_at IS NOT NULL OR j.attempt <> l.attempt
            OR j.lease_nonce IS DISTINCT FROM l.nonce OR j.cancel_requested
         ORDER BY l.place";
    let mut result = HeartbeatResult::default();
    if leases.is_empty() {
        return Ok(result);
    }
    let accounts: Vec<&str> = leases
        .iter()
        .map(|lease| columns::account_text(&lease.job.account))
        .collect();
    let ids: Vec<&str> = leases.iter().map(|lease| lease.job.id.as_str()).collect();
    let attempts: Vec<i32> = leases
        .iter()
        .map(|lease| attempt(lease.fence.attempt))
        .collect();
    let nonces: Vec<String> = leases
        .iter()
        .map(|lease| columns::nonce_text(lease.fence.nonce))
        .collect();
    let params = [
        texts(&accounts),
        texts(&ids),
        (&attempts as _, Type::INT4_ARRAY),
        texts(&nonces),
    ];
    for row in rows(client, CHECK, &params).await? {
        let place: i32 = row.try_get(0)?;
        let Some(lease) = usize::try_from(place).ok().and_then(|n| leases.get(n)) else {
            continue;
        };
        let list = if row.try_get(1)? {
            &mut result.lost
        } else {
            &mut result.cancel
        };
        list.push(JobRef::clone(&lease.job));
    }
    Ok(result)
}

/// A row with account, id, attempt and nonce.
fn held_lease(row: &Row) -> Result<HeldLease, PgError> {
    let id: &str = row.try_get(1)?;
    Ok(HeldLease {
        job: JobRef {
            account: columns::account(row.try_get(0)?)?,
            id: JobId::parse(id).map_err(columns::corrupt)?,
        },
        fence: Fence {
            attempt: records::unsigned(row, 2)?,
            nonce: columns::nonce(row.try_get(3)?)?,
        },
    })
}

/// Gives a lease back. The number of the attempt is not used again; it does not count as a run.
pub(super) async fn release(client: &Client, lease: &HeldLease) -> Result<bool, PgError> {
    const RELEASE: &str = concat!(
        "UPDATE tidegate.jobs j SET status = 'queued', started_at = NULL, released = released + 1, lease_nonce = NULL,
             lease_holder = NULL, lease_boot = NULL, lease_expired = false, queued = false, waiting_since = ",
        now!(),
        ", earlier_attempts = ",
        with_last_attempt!("released", now!()),
        " WHERE account = $1 AND id = $2 AND completed_at IS NULL AND attempt = $3 AND lease_nonce = $4"
    );
    let released = execute(
        client,
        RELEASE,
        &[
            text(&columns::account_text(&lease.job.account)),
            text(&lease.job.id.as_str()),
            integer(&attempt(lease.fence.attempt)),
            text(&columns::nonce_text(lease.fence.nonce)),
        ],
    )
    .await?;
    Ok(released > 0)
}

/// The holder of the live lease of an open job.
pub(super) async fn holder_of(client: &Client, job: &JobRef) -> Result<Option<Holder>, PgError> {
    const HOLDER: &str = concat!(
        "SELECT j.lease_holder, j.lease_boot FROM tidegate.jobs j
         WHERE j.account = $1 AND j.id = $2 AND j.completed_at IS NULL AND ",
        is_live!()
    );
    let row = first(
        client,
        HOLDER,
        &[
            text(&columns::account_text(&job.account)),
            text(&job.id.as_str()),
        ],
    )
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let boot: i64 = row.try_get(1)?;
    Ok(Some(Holder {
        name: records::text(&row, 0)?,
        boot: boot.unsigned_abs(),
    }))
}

/// Ends the life of a holder.
pub(super) async fn retire(client: &Client, holder: &Holder) -> Result<(), PgError> {
    // The row stays, so that an older process with the same name is still superseded.
    execute(
        client,
        "UPDATE tidegate.holders SET alive_until = 0 WHERE name = $1 AND boot = $2",
        &[text(&escape(&holder.name)), bigint(&boot(holder))],
    )
    .await?;
    Ok(())
}
