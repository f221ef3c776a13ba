//! Runs statements. Only those that are run often are prepared under a name ([`super::repeated`]), which a
//! pooler of connections would lose.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::connection::LentConnection;
use super::error::PgError;

/// The value of a parameter, with its type.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The clock of the database, in microseconds since 1970.
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(super) use now;

/// Whether the last lease of the job `j` is live. Only `expired` moves the pulse, so that time in which the
/// cluster did not run does not count.
macro_rules! is_live {
    () => {
        "(NOT j.lease_expired AND EXISTS (SELECT 1 FROM tidegate.holders h, tidegate.pulse p
              WHERE h.name = j.lease_holder AND h.boot = j.lease_boot AND h.alive_until > p.at))"
    };
}
pub(super) use is_live;

/// A parameter of type `text`.
pub(super) fn text<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TEXT)
}

/// A parameter of type `bigint`.
pub(super) fn bigint<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT8)
}

/// A parameter of type `integer`.
pub(super) fn integer<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT4)
}

/// A parameter of type `boolean`.
pub(super) fn boolean<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::BOOL)
}

/// A parameter of type `bytea`.
pub(super) fn bytea<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::BYTEA)
}

/// A parameter of type `text[]`.
pub(super) fn texts<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TEXT_ARRAY)
}

/// A parameter of type `bigint[]`.
pub(super) fn bigints<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT8_ARRAY)
}

/// The rows of a statement.
pub(super) async fn rows(
    client: &Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Vec<Row>, PgError> {
    Ok(client.query_typed(sql, params).await?)
}

/// The first row of a statement, if there is one.
pub(super) async fn first(
    client: &Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Option<Row>, PgError> {
    Ok(rows(client, sql, params).await?.into_iter().next())
}

/// Runs a statement; returns the number of rows that it changed.
pub(super) async fn execute(
    client: &Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<u64, PgError> {
    Ok(client.execute_typed(sql, params).await?)
}

/// The first row of a statement that is run often, if there is one.
pub(super) async fn first_repeated(
    connection: &LentConnection,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Option<Row>, PgError> {
    let Some(statement) = prepared(connection, sql, params) else {
        return first(connection, sql, params).await;
    };
    let rows = connection.query(&statement, &values(params)).await?;
    Ok(rows.into_iter().next())
}

/// Runs a statement that is run often; returns the number of rows that it changed.
pub(super) async fn execute_repeated(
    connection: &LentConnection,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<u64, PgError> {
    match prepared(connection, sql, params) {
        Some(statement) => Ok(connection.execute(&statement, &values(params)).await?),
        None => execute(connection, sql, params).await,
    }
}

fn prepared(
    connection: &LentConnection,
    sql: &'static str,
    params: &[Param<'_>],
) -> Option<Statement> {
    let types = params.iter().map(|(_, kind)| kind.clone());
    connection.repeated().get(sql, types)
}

fn values<'a>(params: &[Param<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|(value, _)| *value).collect()
}

/// A limit as a `bigint`.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A `bigint` as a count.
pub(super) fn unsigned(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}

/// A duration in microseconds.
pub(super) fn micros(duration: std::time::Duration) -> i64 {
    // A century: sums of it and the current time are valid.
    const MAX: i64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(MAX).min(MAX)
}

/// The commit of this transaction does not wait for the disk: its loss delays something, and loses nothing.
pub(super) async fn do_not_sync(client: &Client) -> Result<(), PgError> {
    Ok(client
        .batch_execute("SET LOCAL synchronous_commit = off")
        .await?)
}
