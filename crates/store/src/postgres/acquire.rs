//! Grants leases to the directors of a cluster. Each function runs inside a transaction of its caller.

use std::time::Duration;

use tidegate_core::lease::Fence;
use tidegate_core::leases::{AcquireRequest, Holder};
use tidegate_core::record::JobRecord;
use tokio_postgres::Client;

use super::attempts::{expired_at, with_last_attempt};
use super::connection::LentConnection;
use super::error::PgError;
use super::jobs::attempt;
use super::query::{bigint, first, first_repeated, integer, is_live, micros, now, text};
use super::rows::{self, record_columns};
use super::text::escape;
use crate::columns;

/// The decision about a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireDecision {
    /// The requester may run the job, which expires after this time.
    Granted(Fence, Option<Duration>),
    HeldByAnother,
    CancelRequested,
    Overdue,
    Exhausted,
    Ended,
    Unknown,
    Superseded,
    /// The holder must be kept alive first.
    HolderNeeded,
    /// The job has changed between two statements.
    Changed,
}

/// The boot of a holder as a `bigint`.
pub(super) fn boot(holder: &Holder) -> i64 {
    i64::try_from(holder.boot).unwrap_or(i64::MAX)
}

/// A request, and how much longer its holder must live for it, in microseconds.
#[derive(Debug, Clone)]
pub(super) struct LeaseQuery {
    pub(super) request: AcquireRequest,
    pub(super) margin: i64,
}

impl LeaseQuery {
    /// The heartbeats of a holder keep it alive. Only if they are late, a request must.
    pub(super) fn of_holder(request: AcquireRequest) -> Self {
        let margin = micros(request.lasts) / 2;
        Self { request, margin }
    }

    /// The holder was kept alive just now, for however short a time.
    pub(super) fn of_fresh_holder(self) -> Self {
        Self {
            margin: -micros(Duration::MAX),
            ..self
        }
    }
}

/// Decides about a request. One statement grants: of two requests in one transaction, one succeeds. The record
/// of a granted job is returned unless its input is large: reading that must not delay the commits of other
/// jobs.
pub(super) async fn grant(
    client: &LentConnection,
    query: &LeaseQuery,
) -> Result<(AcquireDecision, Option<JobRecord>), PgError> {
    const GRANT: &str = concat!(
        "UPDATE tidegate.jobs j SET status = 'processing', attempt = attempt + 1, lease_nonce = $3, started_at = ",
        now!(),
        ", lease_holder = $4, lease_boot = $5, lease_expired = false, earlier_attempts = ",
        with_last_attempt!(
            "lost",
            concat!("coalesce(", expired_at!(), ", ", now!(), ")")
        ),
        "
         WHERE account = $1 AND id = $2 AND completed_at IS NULL AND NOT cancel_requested
           AND lease_nonce IS DISTINCT FROM $3 AND attempt - released < $7
           AND (deadline IS NULL OR deadline > ",
        now!(),
        ") AND NOT ",
        is_live!(),
        " AND EXISTS (SELECT 1 FROM tidegate.holders h
               WHERE h.name = $4 AND h.boot = $5 AND h.alive_until >= ",
        now!(),
        " + $6)
         RETURNING ",
        record_columns!(
            "(SELECT CASE WHEN octet_length(i.json) <= 65536 THEN i.json END FROM tidegate.inputs i WHERE i.number = j.number)",
            "NULL::bytea",
            "NULL",
            "NULL",
            "NULL",
            "NULL"
        ),
        ", deadline - ",
        now!()
    );
    let LeaseQuery { request, margin } = query;
    let granted = first_repeated(
        client,
        GRANT,
        &[
            text(&columns::account_text(&request.job.account)),
            text(&request.job.id.as_str()),
            text(&columns::nonce_text(request.nonce)),
            text(&escape(&request.holder.name)),
            bigint(&boot(&request.holder)),
            bigint(margin),
            integer(&attempt(request.max_attempts)),
        ],
    )
    .await?;
    let Some(row) = granted else {
        return Ok((why_not_granted(client, query).await?, None));
    };
    let fence = Fence {
        attempt: rows::attempt(&row)?,
        nonce: request.nonce,
    };
    let remaining = remaining(row.try_get(rows::RECORD_COLUMNS)?);
    // A record that cannot be read does not undo the lease: who reads it again sees the error.
    let record = rows::open_record(&row).ok().flatten();
    Ok((AcquireDecision::Granted(fence, remaining), record))
}

fn remaining(micros: Option<i64>) -> Option<Duration> {
    micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default()))
}

async fn why_not_granted(client: &Client, query: &LeaseQuery) -> Result<AcquireDecision, PgError> {
    const WHY: &str = concat!(
        "SELECT j.attempt, j.completed_at IS NOT NULL, coalesce(j.lease_nonce = $3, false), ",
        is_live!(),
        ", j.cancel_requested, coalesce(j.deadline <= ",
        now!(),
        ", false), j.deadline - ",
        now!(),
        ", j.attempt - j.released >= $4
         FROM tidegate.jobs j WHERE j.account = $1 AND j.id = $2"
    );
    const HOLDER: &str = concat!(
        "SELECT h.boot > $2, h.boot = $2 AND h.alive_until >= ",
        now!(),
        " + $3 FROM tidegate.holders h WHERE h.name = $1"
    );
    let LeaseQuery { request, margin } = query;
    let holder = first(
        client,
        HOLDER,
        &[
            text(&escape(&request.holder.name)),
            bigint(&boot(&request.holder)),
            bigint(margin),
        ],
    )
    .await?;
    let is_holder_alive = match holder {
        Some(row) if row.try_get(0)? => return Ok(AcquireDecision::Superseded),
        Some(row) => row.try_get(1)?,
        None => false,
    };
    if !is_holder_alive {
        return Ok(AcquireDecision::HolderNeeded);
    }
    let found = first(
        client,
        WHY,
        &[
            text(&columns::account_text(&request.job.account)),
            text(&request.job.id.as_str()),
            text(&columns::nonce_text(request.nonce)),
            integer(&attempt(request.max_attempts)),
        ],
    )
    .await?;
    let Some(row) = found else {
        return Ok(AcquireDecision::Unknown);
    };
    let [
        is_ended,
        is_same,
        is_live,
        is_canceled,
        is_overdue,
        is_exhausted,
    ] = [
        row.try_get::<_, bool>(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(7)?,
    ];
    let fence = Fence {
        attempt: rows::unsigned(&row, 0)?,
        nonce: request.nonce,
    };
    Ok(if is_ended {
        AcquireDecision::Ended
    } else if is_live && !is_same {
        AcquireDecision::HeldByAnother
    } else if is_canceled {
        AcquireDecision::CancelRequested
    } else if is_same {
        AcquireDecision::Granted(fence, remaining(row.try_get(6)?))
    } else if is_overdue {
        AcquireDecision::Overdue
    } else if is_exhausted {
        AcquireDecision::Exhausted
    } else {
        AcquireDecision::Changed
    })
}
