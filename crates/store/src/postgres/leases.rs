//! The statements for the leases of a server that uses the database alone. Each function runs inside a
//! transaction of its caller. The leases of a cluster are in `acquire.rs`.

use tidegate_core::lease::{Fence, LeaseRequest, LeaseResult};
use tokio_postgres::Client;

use super::attempts::with_last_attempt;
use super::error::PgError;
use super::jobs::attempt;
use super::query::{bigint, first, integer, text};
use super::rows;
use crate::columns;

/// Decides about a request.
pub(super) async fn grant(client: &Client, request: &LeaseRequest) -> Result<LeaseResult, PgError> {
    const GRANT: &str = concat!(
        "UPDATE tidegate.jobs j SET status = 'processing', attempt = attempt + 1, lease_nonce = $4, started_at = $5,
             lease_holder = NULL, lease_boot = NULL, lease_expired = false, earlier_attempts = ",
        with_last_attempt!("lost", "$5"),
        "
         WHERE account = $1 AND id = $2 AND attempt = $3 AND completed_at IS NULL AND NOT cancel_requested
           AND lease_nonce IS DISTINCT FROM $4
         RETURNING attempt"
    );
    let granted = first(
        client,
        GRANT,
        &[
            text(&columns::account_text(&request.account)),
            text(&request.id.as_str()),
            integer(&attempt(request.after_attempt)),
            text(&columns::nonce_text(request.nonce)),
            bigint(&columns::micros(request.began_at)),
        ],
    )
    .await?;
    match granted {
        Some(row) => Ok(LeaseResult::Granted(Fence {
            attempt: rows::unsigned(&row, 0)?,
            nonce: request.nonce,
        })),
        None => why_not_granted(client, request).await,
    }
}

async fn why_not_granted(client: &Client, request: &LeaseRequest) -> Result<LeaseResult, PgError> {
    let found = first(
        client,
        "SELECT attempt, coalesce(lease_nonce = $3, false), cancel_requested, completed_at IS NOT NULL
         FROM tidegate.jobs WHERE account = $1 AND id = $2",
        &[
            text(&columns::account_text(&request.account)),
            text(&request.id.as_str()),
            text(&columns::nonce_text(request.nonce)),
        ],
    )
    .await?;
    let Some(row) = found else {
        return Ok(LeaseResult::Unknown);
    };
    let (is_same, is_canceled, is_ended) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    Ok(match (is_ended, is_canceled, is_same) {
        (true, _, _) => LeaseResult::Ended,
        (false, true, _) => LeaseResult::CancelRequested,
        (false, false, true) => LeaseResult::Granted(Fence {
            attempt: rows::unsigned(&row, 0)?,
            nonce: request.nonce,
        }),
        (false, false, false) => LeaseResult::HeldByAnother,
    })
}
