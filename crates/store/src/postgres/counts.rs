//! Counts for metrics. Each statement reads an index whose size is that of the running work: leases,
//! directors, or the receivers of pending webhooks.

use std::time::Duration;

use tidegate_core::leases::ClusterCounts;
use tokio_postgres::Client;

use super::error::PgError;
use super::outbox_take::RECEIVERS;
use super::query::{first, now, rows};

pub(super) async fn counts(client: &Client) -> Result<ClusterCounts, PgError> {
    const LEASES: &str = concat!(
        "SELECT (SELECT count(*) FROM tidegate.jobs
                 WHERE completed_at IS NULL AND lease_holder IS NOT NULL AND NOT lease_expired),
                (SELECT count(*) FROM tidegate.holders h, tidegate.pulse p WHERE h.alive_until > p.at), ",
        now!()
    );
    let Some(row) = first(client, LEASES, &[]).await? else {
        return Ok(ClusterCounts::default());
    };
    let (leases, directors, now): (i64, i64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let mut first_due: Option<i64> = None;
    for row in rows(client, RECEIVERS, &[]).await? {
        let next_at: i64 = row.try_get(1)?;
        first_due = Some(first_due.map_or(next_at, |due| due.min(next_at)));
    }
    let overdue = first_due.and_then(|due| u64::try_from(now - due).ok());
    Ok(ClusterCounts {
        leases: usize::try_from(leases).unwrap_or_default(),
        directors: usize::try_from(directors).unwrap_or_default(),
        oldest_due_message: overdue.map(Duration::from_micros),
    })
}
