//! Documents: JSON by namespace and name.

use bytes::Bytes;
use tokio_postgres::Client;

use super::error::PgError;
use super::query::{bytea, execute, first, rows, text};
use super::rows as records;
use super::text::escape;

pub(super) async fn put(
    client: &Client,
    namespace: &str,
    name: &str,
    json: &Bytes,
) -> Result<(), PgError> {
    const PUT: &str = "INSERT INTO tidegate.documents (namespace, name, json) VALUES ($1, $2, $3)
         ON CONFLICT (namespace, name) DO UPDATE SET json = excluded.json";
    execute(
        client,
        PUT,
        &[
            text(&escape(namespace)),
            text(&escape(name)),
            bytea(&&json[..]),
        ],
    )
    .await?;
    Ok(())
}

/// `None`: the document that existed was removed meanwhile.
pub(super) async fn put_new(
    client: &Client,
    namespace: &str,
    name: &str,
    json: &Bytes,
) -> Result<Option<Bytes>, PgError> {
    const PUT_NEW: &str =
        "INSERT INTO tidegate.documents (namespace, name, json) VALUES ($1, $2, $3)
         ON CONFLICT (namespace, name) DO NOTHING";
    let inserted = execute(
        client,
        PUT_NEW,
        &[
            text(&escape(namespace)),
            text(&escape(name)),
            bytea(&&json[..]),
        ],
    )
    .await?;
    if inserted > 0 {
        return Ok(Some(json.clone()));
    }
    fetch(client, namespace, name).await
}

pub(super) async fn swap(
    client: &Client,
    namespace: &str,
    name: &str,
    was: &Bytes,
    json: &Bytes,
) -> Result<bool, PgError> {
    let swapped = execute(
        client,
        "UPDATE tidegate.documents SET json = $4 WHERE namespace = $1 AND name = $2 AND json = $3",
        &[
            text(&escape(namespace)),
            text(&escape(name)),
            bytea(&&was[..]),
            bytea(&&json[..]),
        ],
    )
    .await?;
    Ok(swapped > 0)
}

pub(super) async fn fetch(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Bytes>, PgError> {
    let row = first(
        client,
        "SELECT json FROM tidegate.documents WHERE namespace = $1 AND name = $2",
        &[text(&escape(namespace)), text(&escape(name))],
    )
    .await?;
    let json: Option<Vec<u8>> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(json.map(Bytes::from))
}

pub(super) async fn remove(client: &Client, namespace: &str, name: &str) -> Result<bool, PgError> {
    let removed = execute(
        client,
        "DELETE FROM tidegate.documents WHERE namespace = $1 AND name = $2",
        &[text(&escape(namespace)), text(&escape(name))],
    )
    .await?;
    Ok(removed > 0)
}

/// Names are sorted by their bytes, so those with the prefix are contiguous. `LIKE` would interpret
/// `%` and `_` in the prefix.
pub(super) async fn all(
    client: &Client,
    namespace: &str,
    prefix: &str,
) -> Result<Vec<(String, Bytes)>, PgError> {
    let found = rows(
        client,
        "SELECT name, json FROM tidegate.documents
         WHERE namespace = $1 AND name >= $2 AND starts_with(name, $2) ORDER BY name",
        &[text(&escape(namespace)), text(&escape(prefix))],
    )
    .await?;
    found
        .iter()
        .map(|row| {
            let json: Vec<u8> = row.try_get(1)?;
            Ok((records::text(row, 0)?, Bytes::from(json)))
        })
        .collect()
}
