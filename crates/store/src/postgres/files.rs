//! The statements of the index of files.
//!
//! Transactions that add a row hold [`FILES_LOCK`] shared; a collection holds it alone from the moment it
//! looks for rows until it has removed the contents. So a content is either named by a row that the collection
//! sees, or written after the collection has removed it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Account;
use tidegate_core::blobs::Blobs;
use tidegate_core::chain;
use tidegate_core::file_index::StoredFile;
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::query::{bigint, execute, first, now, rows, text, texts};
use crate::columns;

/// The lock of the contents of files: `tide` and a number.
macro_rules! files_lock {
    () => {
        "7595715428164239364"
    };
}
const ADDING: &str = concat!("SELECT pg_advisory_xact_lock_shared(", files_lock!(), ")");
const COLLECTING: &str = concat!("SELECT pg_try_advisory_xact_lock(", files_lock!(), ")");
/// Uploads of one account are added one after the other if it has a quota.
const QUOTA_LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('tidegate files ' || $1, 0))";

/// How many rows one transaction deletes.
pub(super) const CHUNK: u64 = 1000;
/// Contents that no row names are removed when they are this old.
pub(super) const COLLECTED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A new row.
pub(super) struct NewFile {
    pub(super) account: Account,
    pub(super) file: Arc<StoredFile>,
    pub(super) json: String,
    pub(super) quota: Option<u64>,
}

impl NewFile {
    pub(super) fn new(account: &Account, file: &Arc<StoredFile>, quota: Option<u64>) -> Self {
        Self {
            account: account.clone(),
            json: serde_json::to_string(&**file).expect("the keys of a file are strings"),
            file: Arc::clone(file),
            quota,
        }
    }
}

/// Adds a row that is not complete. Returns the bytes that the account uses if it would exceed its quota.
pub(super) async fn reserve(client: &Client, new: &NewFile) -> Result<Option<u64>, PgError> {
    const INSERT: &str =
        "INSERT INTO tidegate.files (account, id, sha256, size, job, weights_of, expires_at, json)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (account, id) DO NOTHING";
    rows(client, ADDING, &[]).await?;
    let (account, file) = (columns::account_text(&new.account), &new.file);
    let size = i64::try_from(file.size).unwrap_or(i64::MAX);
    if let Some(quota) = new.quota {
        rows(client, QUOTA_LOCK, &[text(&account)]).await?;
        // Without this file: the transaction may be repeated.
        let used = used_bytes(client, &new.account, &file.id).await?;
        if used.saturating_add(file.size) > quota {
            return Ok(Some(used));
        }
    }
    execute(
        client,
        INSERT,
        &[
            text(&account),
            text(&file.id),
            text(&file.sha256),
            bigint(&size),
            text(&file.job),
            text(&file.weights_of),
            bigint(&file.expires_at.map(columns::micros)),
            text(&new.json),
        ],
    )
    .await?;
    Ok(None)
}

/// Adds a complete row with the content of another one; `false` if there is no such row.
pub(super) async fn add_copy(client: &Client, new: &NewFile, from: &str) -> Result<bool, PgError> {
    const INSERT: &str = "INSERT INTO tidegate.files (account, id, sha256, size, job, weights_of, expires_at, json, is_complete)
         SELECT $1, $2, f.sha256, f.size, $4, $5, $6, $7, true
         FROM tidegate.files f WHERE f.account = $1 AND f.id = $3 AND f.is_complete
         ON CONFLICT (account, id) DO UPDATE SET is_complete = true";
    rows(client, ADDING, &[]).await?;
    let added = execute(
        client,
        INSERT,
        &[
            text(&columns::account_text(&new.account)),
            text(&new.file.id),
            text(&from),
            text(&new.file.job),
            text(&new.file.weights_of),
            bigint(&new.file.expires_at.map(columns::micros)),
            text(&new.json),
        ],
    )
    .await?;
    Ok(added > 0)
}

/// Marks a row as complete; `false` if it was removed.
pub(super) async fn complete(
    client: &Client,
    account: &Account,
    id: &str,
) -> Result<bool, PgError> {
    let changed = execute(
        client,
        "UPDATE tidegate.files SET is_complete = true WHERE account = $1 AND id = $2",
        &[text(&columns::account_text(account)), text(&id)],
    )
    .await?;
    Ok(changed > 0)
}

pub(super) async fn remove(client: &Client, account: &Account, id: &str) -> Result<bool, PgError> {
    let removed = execute(
        client,
        "DELETE FROM tidegate.files WHERE account = $1 AND id = $2",
        &[text(&columns::account_text(account)), text(&id)],
    )
    .await?;
    Ok(removed > 0)
}

pub(super) async fn find(
    client: &Client,
    account: &Account,
    id: &str,
) -> Result<Option<Arc<StoredFile>>, PgError> {
    let row = first(
        client,
        "SELECT json FROM tidegate.files WHERE account = $1 AND id = $2 AND is_complete",
        &[text(&columns::account_text(account)), text(&id)],
    )
    .await?;
    row.as_ref().map(|row| read(row, 0)).transpose()
}

pub(super) async fn uploads(
    client: &Client,
    account: &Account,
) -> Result<Vec<Arc<StoredFile>>, PgError> {
    const UPLOADS: &str = concat!(
        "SELECT json FROM tidegate.files
         WHERE account = $1 AND job IS NULL AND weights_of IS NULL AND is_complete AND expires_at > ",
        now!()
    );
    let found = rows(client, UPLOADS, &[text(&columns::account_text(account))]).await?;
    found.iter().map(|row| read(row, 0)).collect()
}

/// The bytes of all files of an account but one that count towards its quota.
pub(super) async fn used_bytes(
    client: &Client,
    account: &Account,
    except: &str,
) -> Result<u64, PgError> {
    const USED: &str = concat!(
        "SELECT coalesce(sum(size), 0)::bigint FROM tidegate.files
         WHERE account = $1 AND id <> $2 AND job IS NULL AND (expires_at IS NULL OR expires_at > ",
        now!(),
        ")"
    );
    let account = columns::account_text(account);
    let row = first(client, USED, &[text(&account), text(&except)]).await?;
    let used: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    Ok(u64::try_from(used).unwrap_or_default())
}

pub(super) async fn weights(client: &Client) -> Result<Vec<(Account, Arc<StoredFile>)>, PgError> {
    let found = rows(
        client,
        "SELECT account, json FROM tidegate.files WHERE weights_of IS NOT NULL AND is_complete",
        &[],
    )
    .await?;
    let weights = |row: &Row| {
        let account = columns::account(row.try_get(0)?)?;
        Ok((account, read(row, 1)?))
    };
    found.iter().map(weights).collect()
}

/// What has expired, in microseconds. The clock of the database decides: if it is behind that of the caller,
/// both times are moved back by the difference.
pub(super) struct ExpiryTimes {
    pub(super) now: i64,
    pub(super) outputs_before: i64,
}

/// Deletes some of the expired rows, and of those whose content was never written; returns how many.
pub(super) async fn remove_expired(client: &Client, times: &ExpiryTimes) -> Result<u64, PgError> {
    const EXPIRED: &str = concat!(
        "SELECT account, id FROM tidegate.files WHERE expires_at <= least($1, ",
        now!(),
        ")"
    );
    const INCOMPLETE: &str = concat!(
        "SELECT account, id FROM tidegate.files WHERE NOT is_complete AND created_at <= ",
        now!(),
        " - 3600000000"
    );
    const WITHOUT_JOB: &str = concat!(
        "SELECT account, id FROM tidegate.files f WHERE f.job IS NOT NULL
         AND f.created_at <= $2 - greatest(0, $1 - ",
        now!(),
        ") AND NOT EXISTS (SELECT 1 FROM tidegate.jobs j
             WHERE j.account = f.account AND j.id = f.job AND NOT j.data_removed)"
    );
    let mut removed = 0;
    let (now, before) = (bigint(&times.now), bigint(&times.outputs_before));
    for (chosen, params) in [
        (EXPIRED, vec![now.clone()]),
        (INCOMPLETE, Vec::new()),
        (WITHOUT_JOB, vec![now, before]),
    ] {
        let delete = format!(
            "WITH chosen AS MATERIALIZED ({chosen} LIMIT {CHUNK} FOR UPDATE SKIP LOCKED)
             DELETE FROM tidegate.files d USING chosen WHERE d.account = chosen.account AND d.id = chosen.id"
        );
        removed += execute(client, &delete, &params).await?;
    }
    Ok(removed)
}

/// Removes the contents among these that no row names. `false`: another process collects.
pub(super) async fn collect(
    client: &Client,
    blobs: &dyn Blobs,
    names: &[String],
) -> Result<bool, PgError> {
    let lock = first(client, COLLECTING, &[]).await?;
    if !lock.map_or(Ok(false), |row| row.try_get(0))? {
        return Ok(false);
    }
    let named = rows(
        client,
        "SELECT DISTINCT sha256 FROM tidegate.files WHERE sha256 = ANY ($1)",
        &[texts(&names)],
    )
    .await?;
    let named: Vec<String> = named
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| !named.contains(name)) {
        match blobs.remove_older_than(name, COLLECTED_AFTER).await {
            Ok(()) => tracing::debug!(digest = name, "removed the content of removed files"),
            Err(error) => {
                tracing::warn!(error = %chain(&error), digest = name, "failed to remove blob")
            }
        }
    }
    Ok(true)
}

fn read(row: &Row, column: usize) -> Result<Arc<StoredFile>, PgError> {
    let json: &str = row.try_get(column)?;
    Ok(Arc::new(columns::json(json)?))
}
