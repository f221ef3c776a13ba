//! Writes the rows of a migration. The position in the source is stored in the same transaction as the rows
//! before it, so that no row is written twice, also if it was deleted here meanwhile.

use futures_util::stream::{FuturesOrdered, StreamExt};
use tidegate_core::record::Completion;
use tidegate_core::store::StoreError;
use tokio_postgres::Client;

use super::PostgresStore;
use super::error::PgError;
use super::jobs::attempt;
use super::outbox::receiver_key;
use super::query::{bigint, boolean, bytea, execute, first, integer, text};
use super::text::escape;
use crate::columns;
use crate::migration::{
    BeginResult, ExportedDocument, ExportedJob, ExportedMessage, ExportedPage, MigrationState,
};

/// The document with the state of the migration.
const NAMESPACE: &str = "migration";
const NAME: &str = "state";
/// How many statements are sent without waiting for the replies.
const PIPELINED: usize = 64;

impl PostgresStore {
    /// Whether a migration of this source can begin, or has begun.
    pub(crate) async fn import_check(&self, source: &str) -> Result<BeginResult, StoreError> {
        self.connections
            .read(source, |client, source| Box::pin(check(client, source)))
            .await
    }

    /// Begins a migration with its documents, or finds the one that has begun.
    pub(crate) async fn import_begin(
        &self,
        source: &str,
        documents: &[ExportedDocument],
    ) -> Result<BeginResult, StoreError> {
        self.connections
            .change((source, documents), |client, (source, documents)| {
                Box::pin(begin(client, source, documents))
            })
            .await
    }

    /// Writes jobs, unless an earlier call has written them.
    pub(crate) async fn import_jobs(
        &self,
        page: &ExportedPage<ExportedJob>,
    ) -> Result<(), StoreError> {
        self.connections
            .change(page, |client, page| Box::pin(import_jobs(client, page)))
            .await
    }

    /// Writes messages, unless an earlier call has written them.
    pub(crate) async fn import_messages(
        &self,
        page: &ExportedPage<ExportedMessage>,
    ) -> Result<(), StoreError> {
        self.connections
            .change(page, |client, page| Box::pin(import_messages(client, page)))
            .await
    }

    /// Records that all rows are written.
    pub(crate) async fn import_end(&self) -> Result<(), StoreError> {
        self.connections
            .change((), |client, ()| {
                Box::pin(async move {
                    let mut state = locked_state(client).await?;
                    state.is_finished = true;
                    put_state(client, &state).await
                })
            })
            .await
    }
}

async fn check(client: &Client, source: &str) -> Result<BeginResult, PgError> {
    const IN_USE: &str =
        "SELECT EXISTS (SELECT 1 FROM tidegate.jobs) OR EXISTS (SELECT 1 FROM tidegate.outbox)
            OR EXISTS (SELECT 1 FROM tidegate.documents)";
    if let Some(state) = state(client).await? {
        return Ok(if state.source == source {
            BeginResult::Begun(state)
        } else {
            BeginResult::OtherSource
        });
    }
    let row = first(client, IN_USE, &[]).await?;
    let in_use = row.map(|row| row.try_get(0)).transpose()?;
    Ok(match in_use {
        Some(true) => BeginResult::InUse,
        Some(false) | None => BeginResult::Ready,
    })
}

async fn begin(
    client: &Client,
    source: &str,
    documents: &[ExportedDocument],
) -> Result<BeginResult, PgError> {
    // Two migrations into one database wait for each other, and no server stores its own secrets meanwhile.
    execute(
        client,
        "LOCK TABLE tidegate.documents IN SHARE ROW EXCLUSIVE MODE",
        &[],
    )
    .await?;
    match check(client, source).await? {
        BeginResult::Ready => {}
        known => return Ok(known),
    }
    for document in documents {
        let ExportedDocument {
            namespace,
            name,
            json,
        } = document;
        super::documents::put(client, namespace, name, json).await?;
    }
    let state = MigrationState {
        source: source.to_owned(),
        files_after: String::new(),
        jobs_after: 0,
        messages_after: 0,
        is_finished: false,
    };
    put_state(client, &state).await?;
    Ok(BeginResult::Begun(state))
}

async fn state(client: &Client) -> Result<Option<MigrationState>, PgError> {
    let found = super::documents::fetch(client, NAMESPACE, NAME).await?;
    let state = found.map(|json| serde_json::from_slice(&json).map_err(columns::corrupt));
    Ok(state.transpose()?)
}

/// The state, which no other transaction changes until this one ends.
pub(super) async fn locked_state(client: &Client) -> Result<MigrationState, PgError> {
    let params = [text(&NAMESPACE), text(&NAME)];
    first(
        client,
        "SELECT 1 FROM tidegate.documents WHERE namespace = $1 AND name = $2 FOR UPDATE",
        &params,
    )
    .await?;
    let state = state(client).await?;
    state.ok_or_else(|| columns::corrupt("the migration has not begun").into())
}

pub(super) async fn put_state(client: &Client, state: &MigrationState) -> Result<(), PgError> {
    let json = columns::json_text(state)?.into_bytes().into();
    super::documents::put(client, NAMESPACE, NAME, &json).await
}

async fn import_jobs(client: &Client, page: &ExportedPage<ExportedJob>) -> Result<(), PgError> {
    let mut state = locked_state(client).await?;
    let after = state.jobs_after;
    // The statements are sent in order, without waiting for the replies.
    let mut sent = FuturesOrdered::new();
    for job in &page.items {
        if job.number > after {
            sent.push_back(import_job(client, job));
        }
        if sent.len() >= PIPELINED {
            sent.next().await.transpose()?;
        }
    }
    while sent.next().await.transpose()?.is_some() {}
    state.jobs_after = after.max(page.last);
    put_state(client, &state).await
}

/// A job that had begun keeps its attempts. It has no lease, so reconciliation offers it to
/// directors.
async fn import_job(client: &Client, job: &ExportedJob) -> Result<(), PgError> {
    const JOB: &str = "WITH job AS (
             INSERT INTO tidegate.jobs (account, id, kind, model, version, deployment, api, hook, context, files, secrets,
                 destination, policies, created_at, deadline, status, attempt, started_at, completed_at, data_removed,
                 cancel_requested, earlier_attempts)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                 $28::text::jsonb)
             ON CONFLICT (account, id) DO NOTHING RETURNING number, completed_at),
         input AS (INSERT INTO tidegate.inputs (number, json) SELECT number, $22 FROM job)
         INSERT INTO tidegate.ends (number, output, logs, error, metrics, remote)
         SELECT number, $23, $24, $25, $26, $27 FROM job WHERE completed_at IS NOT NULL";
    let (record, spec) = (&job.record, &job.record.spec);
    let deployment = spec.target.deployment.as_ref().map(ToString::to_string);
    let hook = spec.hook.as_ref().map(columns::json_text).transpose()?;
    let completed_at = record
        .completion
        .as_ref()
        .map(|completion| columns::micros(completion.completed_at));
    let empty = Completion::empty();
    let end = record.completion.as_ref().unwrap_or(&empty);
    let remote = end.remote.as_ref().map(columns::json_text).transpose()?;
    execute(
        client,
        JOB,
        &[
            text(&columns::account_text(&spec.account)),
            text(&spec.id.as_str()),
            text(&columns::kind_text(spec.kind)),
            text(&escape(&spec.target.model)),
            text(&escape(&spec.target.version)),
            text(&deployment.as_deref().map(escape)),
            text(&columns::api_text(spec.api)),
            text(&hook),
            text(&columns::json_text(&spec.context)?),
            text(&columns::json_text(&spec.files)?),
            text(&columns::json_text(&spec.secrets)?),
            text(&spec.destination.as_deref().map(escape)),
            text(&columns::json_text(&spec.policies)?),
            bigint(&columns::micros(spec.created_at)),
            bigint(&spec.deadline.map(columns::micros)),
            text(&columns::status_text(record.status)),
            integer(&attempt(record.attempt)),
            bigint(&record.started_at.map(columns::micros)),
            bigint(&completed_at),
            boolean(&record.data_removed),
            boolean(&record.cancel_requested),
            bytea(&&spec.input[..]),
            bytea(&end.output.as_deref()),
            text(&escape(&end.logs)),
            text(&end.error.as_deref().map(escape)),
            text(&columns::json_text(&end.metrics)?),
            text(&remote),
            text(&job.earlier_attempts),
        ],
    )
    .await?;
    Ok(())
}

async fn import_messages(
    client: &Client,
    page: &ExportedPage<ExportedMessage>,
) -> Result<(), PgError> {
    let mut state = locked_state(client).await?;
    if page.last > state.messages_after {
        let mut sent = FuturesOrdered::new();
        for exported in &page.items {
            sent.push_back(import_message(client, exported));
            if sent.len() >= PIPELINED {
                sent.next().await.transpose()?;
            }
        }
        while sent.next().await.transpose()?.is_some() {}
    }
    state.messages_after = state.messages_after.max(page.last);
    put_state(client, &state).await
}

/// A message keeps its schedule and the number of its attempts.
async fn import_message(client: &Client, exported: &ExportedMessage) -> Result<(), PgError> {
    const MESSAGE: &str = "WITH message AS (
             INSERT INTO tidegate.outbox (id, account, job, model, receiver, hook, created_at, attempts, next_at,
                 retry_until, settled_at, given_up)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             ON CONFLICT (id) DO NOTHING RETURNING number)
         INSERT INTO tidegate.outbox_bodies (number, body) SELECT number, $13 FROM message";
    let message = &exported.message;
    execute(
        client,
        MESSAGE,
        &[
            text(&escape(&message.id)),
            text(&columns::account_text(&message.account)),
            text(&message.job.as_str()),
            text(&escape(&message.model)),
            text(&escape(receiver_key(&message.receiver))),
            text(&columns::json_text(&message.hook)?),
            bigint(&columns::micros(message.created_at)),
            integer(&attempt(message.attempts)),
            bigint(&exported.next_at),
            bigint(&message.retry_until.map(columns::micros)),
            bigint(&exported.settled_at),
            text(&exported.given_up.as_deref().map(escape)),
            bytea(&&message.body[..]),
        ],
    )
    .await?;
    Ok(())
}
