//! The recorded epoch of the queue. Jobs are marked as queued only with the epoch that is recorded, so that a
//! late mark cannot hide a job whose entry the queue has lost.

use tokio_postgres::Client;

use super::error::PgError;
use super::query::{execute, first, text};

/// Records that the queue has another epoch. The marks of earlier epochs are still to be removed.
pub(super) async fn begin(client: &Client, epoch: &str) -> Result<(), PgError> {
    const BEGIN: &str = "INSERT INTO tidegate.queue_epoch (epoch, is_complete) VALUES ($1, false)
         ON CONFLICT (only_row) DO UPDATE SET epoch = excluded.epoch, is_complete = false";
    execute(client, BEGIN, &[text(&epoch)]).await?;
    Ok(())
}

/// Records that the marks of earlier epochs were removed. Returns whether the epoch is still the recorded one.
pub(super) async fn complete(client: &Client, epoch: &str) -> Result<bool, PgError> {
    const COMPLETE: &str = "UPDATE tidegate.queue_epoch SET is_complete = true WHERE epoch = $1";
    Ok(execute(client, COMPLETE, &[text(&epoch)]).await? > 0)
}

/// The recorded epoch, if the marks of earlier ones were removed.
pub(super) async fn completed(client: &Client) -> Result<Option<String>, PgError> {
    const COMPLETED: &str = "SELECT epoch FROM tidegate.queue_epoch WHERE is_complete";
    let row = first(client, COMPLETED, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Whether jobs may be marked with this epoch. Until the end of the transaction no other epoch is recorded, so
/// the marks of the transaction are removed with those before. Before the first record, every epoch holds.
pub(super) async fn holds(client: &Client, epoch: &str) -> Result<bool, PgError> {
    const HOLDS: &str =
        "SELECT true FROM tidegate.queue_epoch WHERE epoch = $1 OR epoch = '' FOR SHARE";
    Ok(first(client, HOLDS, &[text(&epoch)]).await?.is_some())
}
