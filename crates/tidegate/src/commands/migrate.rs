//! `tidegate migrate`: moves the jobs and files of a data folder to a PostgreSQL database and the storage of
//! a cluster.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use tidegate_core::chain;
use tidegate_store::{
    DataFolderMigration, DatabaseUse, FileTransfer, MigrationError, PostgresOptions, PostgresUrl,
    SourceCounts, StoreOpenError,
};

use crate::cli::MigrateArgs;
use crate::file_migration::{self, FileMigration};
use crate::postgres_setup;
use crate::usage_error::UsageError;

const INTERRUPTED: &str = "the migration was interrupted; run the same command again to finish it";

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
    let found = migration.counts().await;
    let mut found = found.context("failed to read the data folder")?;
    if args.without_files {
        found.files = 0;
    }
    if args.dry_run {
        print(&format!("would move {}", describe(&found)));
        return Ok(ExitCode::SUCCESS);
    }
    file_migration::check_target(args, found.files).await?;
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let store = postgres_setup::open(&url, &options).await?;
    let name = parsed.to_string();
    let begun = migration
        .begin(&store, &name)
        .await
        .map_err(migration_error)?;
    let files = if found.files == 0 {
        None
    } else {
        let opened = FileMigration::open(args, &migration, &store).await;
        Some(opened.context(INTERRUPTED)?)
    };
    let files = files.as_ref().map(|files| files as &dyn FileTransfer);
    let report = begun.run(files).await.map_err(migration_error)?;
    print(&format!("moved {} to {parsed}", describe(&found)));
    if report.unreadable > 0 {
        let mut err = std::io::stderr().lock();
        writeln!(
            err,
            "{} rows or files cannot be read and are only in the data folder; the log names them",
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
        files,
    } = counts;
    format!(
        "{jobs} jobs ({open_jobs} not ended), {messages} webhook messages ({pending_messages} pending), {documents} documents, {files} files"
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
        error @ (MigrationError::Mark(_) | MigrationError::Store(_)) => {
            anyhow::Error::from(error).context(INTERRUPTED)
        }
    }
}
