//! Moves the files, jobs, messages and documents of a data folder into a PostgreSQL database.
//!
//! The database records how far the migration is, in the transactions that write the rows. It can be
//! interrupted at any time and run again; a row is written once, also if the database has deleted it since.
//! The data folder is marked before the first row is written: from then on no server opens it, because its
//! open jobs would run a second time.

mod files;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Documents, StoreError};

use crate::{PostgresStore, SqliteStore, StoreOpenError};

pub(crate) use files::ExportedFile;
pub use files::{ContentCopy, FileTransfer};

/// The document that identifies the data folder.
const SOURCE: (&str, &str) = ("migration", "source");

/// A part of a table of the source.
pub(crate) struct ExportedPage<T> {
    pub(crate) items: Vec<T>,
    /// The number of the last row of the page.
    pub(crate) last: i64,
    pub(crate) is_end: bool,
    /// Rows that cannot be read.
    pub(crate) unreadable: usize,
}

/// A job with what its record leaves out.
pub(crate) struct ExportedJob {
    pub(crate) number: i64,
    pub(crate) record: JobRecord,
    /// The attempts before the last one; the same JSON in both databases.
    pub(crate) earlier_attempts: Option<String>,
}

/// A message with its schedule, in microseconds since 1970.
pub(crate) struct ExportedMessage {
    pub(crate) message: OutboxMessage,
    pub(crate) next_at: i64,
    pub(crate) settled_at: Option<i64>,
    pub(crate) given_up: Option<String>,
}

/// A document.
pub(crate) struct ExportedDocument {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) json: Bytes,
}

/// How far a migration is, as the database stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MigrationState {
    /// Identifies the data folder.
    pub(crate) source: String,
    /// The name of the last file that was written.
    #[serde(default)]
    pub(crate) files_after: String,
    /// The number of the last job that was written.
    pub(crate) jobs_after: i64,
    /// The number of the last message that was written.
    pub(crate) messages_after: i64,
    pub(crate) is_finished: bool,
}

/// Whether a migration can begin.
pub(crate) enum BeginResult {
    /// It has begun, now or before.
    Begun(MigrationState),
    /// It can begin.
    Ready,
    /// The database has the data of another folder.
    OtherSource,
    /// The database has data that was not migrated.
    InUse,
}

/// How far a data folder is migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationMark {
    /// A migration has begun: some jobs may be in the database.
    Begun,
    /// Everything is in the database.
    Finished,
}

/// What a data folder contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// All jobs.
    pub jobs: usize,
    /// The jobs among them that have not ended.
    pub open_jobs: usize,
    /// All webhook messages.
    pub messages: usize,
    /// The messages among them that are not settled.
    pub pending_messages: usize,
    /// Deployments, user models, secrets.
    pub documents: usize,
    /// Uploads, output files and weights that have not expired.
    pub files: usize,
}

/// The result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationReport {
    /// Rows and contents of files that cannot be read. They stay in the data folder.
    pub unreadable: usize,
}

/// Why a migration failed. It can be run again.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The database has the data of another folder.
    #[error("the database has the data of another data folder")]
    OtherSource,
    /// The database has data that was not migrated.
    #[error("the database is not empty: a server has used it already")]
    InUse,
    /// A mark could not be written to the data folder.
    #[error("failed to mark the data folder as migrated")]
    Mark(#[source] std::io::Error),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A data folder that is migrated to a database.
pub struct DataFolderMigration {
    source: Arc<SqliteStore>,
    folder: std::path::PathBuf,
}

impl DataFolderMigration {
    /// Locks and opens a data folder, also if a migration has begun or ended.
    pub fn open(folder: &Path) -> Result<Self, StoreOpenError> {
        Ok(Self {
            source: Arc::new(SqliteStore::open_for_migration(folder)?),
            folder: folder.to_owned(),
        })
    }

    /// What the data folder contains.
    pub async fn counts(&self) -> Result<SourceCounts, StoreError> {
        let counts = self.source.export_counts().await?;
        let files = files::read_all(&self.source, Timestamp::now()).await?;
        Ok(SourceCounts {
            files: files.items.len() + files.unreadable,
            ..counts
        })
    }

    /// The documents of the data folder, which have the metadata of its files.
    pub fn documents(&self) -> Arc<dyn Documents> {
        Arc::clone(&self.source) as _
    }

    /// Marks the data folder and stores its documents in the database. `target_name` is the name of the
    /// database in messages.
    pub async fn begin<'a>(
        &'a self,
        target: &'a PostgresStore,
        target_name: &'a str,
    ) -> Result<BegunMigration<'a>, MigrationError> {
        let id = self.id().await?;
        // Checked before the mark, so that a mistake in the address changes nothing.
        begun_state(target.import_check(&id).await?)?;
        let begun = BegunMigration {
            migration: self,
            target,
            target_name,
            state: None,
        };
        begun.mark(MigrationMark::Begun)?;
        let mut documents = self.source.export_documents().await?;
        // The database has a table for the metadata of files.
        documents.retain(|document| document.namespace != files::NAMESPACE);
        let state = begun_state(target.import_begin(&id, &documents).await?)?;
        Ok(BegunMigration { state, ..begun })
    }

    /// Identifies the data folder. The first call chooses it.
    async fn id(&self) -> Result<String, StoreError> {
        let (namespace, name) = SOURCE;
        let now = Timestamp::now().as_nanosecond();
        let json = Bytes::from(format!("\"{now:x}-{:x}\"", std::process::id()));
        let stored = self.source.put_new(namespace, name, json).await?;
        Ok(String::from_utf8_lossy(&stored).into_owned())
    }
}

/// A migration whose documents are in the database.
pub struct BegunMigration<'a> {
    migration: &'a DataFolderMigration,
    target: &'a PostgresStore,
    target_name: &'a str,
    /// How far it is.
    state: Option<MigrationState>,
}

impl BegunMigration<'_> {
    /// Moves the rest. Without `files`, the files stay in the data folder.
    pub async fn run(
        &self,
        files: Option<&dyn FileTransfer>,
    ) -> Result<MigrationReport, MigrationError> {
        let mut unreadable = 0;
        if let Some(state) = self.state.as_ref().filter(|state| !state.is_finished) {
            if let Some(files) = files {
                unreadable += self.move_files(files, &state.files_after).await?;
            }
            unreadable += self.move_jobs(files, state.jobs_after).await?;
            unreadable += self.move_messages(state.messages_after).await?;
            self.target.import_end().await?;
        }
        self.mark(MigrationMark::Finished)?;
        Ok(MigrationReport { unreadable })
    }

    fn mark(&self, mark: MigrationMark) -> Result<(), MigrationError> {
        crate::sqlite::mark_migrated(&self.migration.folder, self.target_name, mark)
            .map_err(MigrationError::Mark)
    }

    /// Returns how many rows cannot be read.
    async fn move_jobs(
        &self,
        files: Option<&dyn FileTransfer>,
        mut after: i64,
    ) -> Result<usize, StoreError> {
        let mut unreadable = 0;
        loop {
            let mut page = self.migration.source.export_jobs(after).await?;
            if let Some(files) = files {
                for job in &mut page.items {
                    files::adapt_output(files, &mut job.record);
                }
            }
            self.target.import_jobs(&page).await?;
            (after, unreadable) = (page.last, unreadable + page.unreadable);
            if page.is_end {
                return Ok(unreadable);
            }
        }
    }

    /// Returns how many rows cannot be read.
    async fn move_messages(&self, mut after: i64) -> Result<usize, StoreError> {
        let mut unreadable = 0;
        loop {
            let page = self.migration.source.export_messages(after).await?;
            self.target.import_messages(&page).await?;
            (after, unreadable) = (page.last, unreadable + page.unreadable);
            if page.is_end {
                return Ok(unreadable);
            }
        }
    }
}

fn begun_state(result: BeginResult) -> Result<Option<MigrationState>, MigrationError> {
    match result {
        BeginResult::Begun(state) => Ok(Some(state)),
        BeginResult::Ready => Ok(None),
        BeginResult::OtherSource => Err(MigrationError::OtherSource),
        BeginResult::InUse => Err(MigrationError::InUse),
    }
}
