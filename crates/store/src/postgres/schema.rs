//! The layout of the database and its migrations. All tables are in the schema `tidegate`.
//!
//! A released migration never changes: a new layout is a new entry at the end of [`STEPS`]. A migration
//! only adds: processes of the previous version run beside new ones during an upgrade, so what they use is
//! removed in a later version.

use tokio_postgres::Client;

use super::open::PostgresOpenError;

/// The lock that a migration holds: `tide` and a number.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7595715428164239362)";

/// A migration.
pub(super) struct Migration {
    /// The statements.
    pub(super) sql: &'static str,
    /// The earliest layout whose programs can use the database after the migration.
    pub(super) usable_from: i32,
}

/// The migrations; the one at index `n` leads from layout `n` to `n + 1`.
pub(super) const STEPS: &[Migration] = &[
    Migration {
        sql: include_str!("schema/1.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/2.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/3.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/4.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/5.sql"),
        usable_from: 1,
    },
    Migration {
        sql: include_str!("schema/6.sql"),
        usable_from: 1,
    },
];

/// The layout of a database.
struct Layout {
    version: i32,
    usable_from: i32,
}

/// Migrates the database to the latest layout, in one transaction. A database with a later layout is
/// accepted if this program can use it.
pub(super) async fn migrate(client: &Client, steps: &[Migration]) -> Result<(), PostgresOpenError> {
    let known = i32::try_from(steps.len()).unwrap_or(i32::MAX);
    if let Some(layout) = read(client).await?
        && layout.version >= known
    {
        return check(&layout, known);
    }
    client.batch_execute("BEGIN").await?;
    let migrated = take_steps(client, steps, known).await;
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = client.batch_execute(end).await;
    migrated?;
    Ok(ended?)
}

fn check(layout: &Layout, known: i32) -> Result<(), PostgresOpenError> {
    if layout.usable_from > known {
        return Err(PostgresOpenError::Newer {
            found: layout.version,
            known,
        });
    }
    Ok(())
}

/// Another process may have migrated the database before this one got the lock.
async fn take_steps(
    client: &Client,
    steps: &[Migration],
    known: i32,
) -> Result<(), PostgresOpenError> {
    client.batch_execute(MIGRATION_LOCK).await?;
    let from = match read(client).await? {
        Some(layout) if layout.version >= known => return check(&layout, known),
        Some(layout) => layout.version,
        None => 0,
    };
    if from == 0 {
        create(client).await?;
    }
    for (number, step) in (1..=known).zip(steps).skip(from as usize) {
        let record = format!(
            "UPDATE tidegate.layout SET version = {number}, usable_from = {}",
            step.usable_from
        );
        let migrated = async {
            client.batch_execute(step.sql).await?;
            client.batch_execute(&record).await
        };
        migrated
            .await
            .map_err(|source| PostgresOpenError::Migration {
                from: number - 1,
                source,
            })?;
    }
    Ok(())
}

/// The layout, if there is one. Tables of another program in the schema are an error.
async fn read(client: &Client) -> Result<Option<Layout>, PostgresOpenError> {
    let row = client
        .query_typed_one(
            "SELECT to_regclass('tidegate.layout') IS NOT NULL,
                    (SELECT count(*) FROM pg_tables WHERE schemaname = 'tidegate')",
            &[],
        )
        .await?;
    match (row.try_get(0)?, row.try_get::<_, i64>(1)?) {
        (false, 0) => return Ok(None),
        (false, _) => return Err(PostgresOpenError::Foreign),
        (true, _) => {}
    }
    let row = client
        .query_typed_one("SELECT version, usable_from FROM tidegate.layout", &[])
        .await?;
    Ok(Some(Layout {
        version: row.try_get(0)?,
        usable_from: row.try_get(1)?,
    }))
}

async fn create(client: &Client) -> Result<(), PostgresOpenError> {
    // The schema may exist already: a role that cannot create schemas can be given an empty one.
    let exists = client
        .query_typed_one("SELECT to_regnamespace('tidegate') IS NOT NULL", &[])
        .await?;
    if !exists.try_get(0)? {
        client.batch_execute("CREATE SCHEMA tidegate").await?;
    }
    client
        .batch_execute(
            "CREATE TABLE tidegate.layout (version integer NOT NULL, usable_from integer NOT NULL);
             INSERT INTO tidegate.layout VALUES (0, 0)",
        )
        .await?;
    Ok(())
}
