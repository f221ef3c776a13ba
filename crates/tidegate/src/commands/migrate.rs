//! `tidegate migrate`: moves the jobs of a data folder to a PostgreSQL database.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use tidegate_core::chain;
use tidegate_store::{
    DataFolderMigration, DatabaseUse, MigrationError, PostgresOptions, PostgresUrl, SourceCounts,
    StoreOpenError,
};

use crate::cli::MigrateArgs;
use crate::postgres_setup;
use crate::usage_error::UsageError;

pub(crate) async fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let url = postgres_setup::url(args.postgres.as_ref()).ok_or_else(|| {
        UsageError::new("the address of the database is missing")
            .hint("give it with --postgres postgres://USER@HOST/DATABASE, or set TIDEGATE_POSTGRES")
    })?;
    let parsed: PostgresUrl = url
        .parse()
        .map_err(|error| UsageError::new(format!("--postgres is not valid: {error}")))?;
    let migration =
        DataFolderMigration::open(&args.data_dir).map_err(|error| open_error(&error))?;
    let found = migration
        .counts()
        .await
        .context("failed to read the data folder")?;
    if args.dry_run {
        print(&format!("would move {}", describe(&found)));
        return Ok(ExitCode::SUCCESS);
    }
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let store = postgres_setup::open(&url, &options).await?;
    let report = migration
        .run(&store, &parsed.to_string())
        .await
        .map_err(migration_error)?;
    print(&format!("moved {} to {parsed}", describe(&report.found)));
    if report.unreadable > 0 {
        let mut err = std::io::stderr().lock();
        writeln!(
            err,
            "{} rows cannot be read and are only in the data folder; the log names them",
            report.unreadable
        )
        .ok();
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(line: &str) {
    // Ignored, because the reader may close the pipe early.
    writeln!(std::io::stdout().lock(), "{line}").ok();
}

fn describe(counts: &SourceCounts) -> String {
    let SourceCounts {
        jobs,
        open_jobs,
        messages,
        pending_messages,
        documents,
    } = counts;
    format!(
        "{jobs} jobs ({open_jobs} not ended), {messages} webhook messages ({pending_messages} pending), {documents} documents"
    )
}

fn open_error(error: &StoreOpenError) -> UsageError {
    let usage = UsageError::new(format!("cannot migrate: {}", chain(error)));
    match error {
        StoreOpenError::InUse { .. } => {
            usage.hint("stop the server and run the command again; its clients wait for a moment")
        }
        _ => usage,
    }
}

fn migration_error(error: MigrationError) -> anyhow::Error {
    let usage = |text: &str| {
        UsageError::new(text)
            .hint("create a new database and migrate before a server uses it")
            .into()
    };
    match error {
        MigrationError::OtherSource => {
            usage("cannot migrate: the database has the data of another data folder")
        }
        MigrationError::InUse => {
            usage("cannot migrate: the database is not empty, a server has used it already")
        }
        error @ (MigrationError::Mark(_) | MigrationError::Store(_)) => anyhow::Error::from(error)
            .context("the migration was interrupted; run the same command again to finish it"),
    }
}
