//! Moves the files of a data folder: their metadata becomes rows of the database, their contents are copied
//! by a [`FileTransfer`], which knows both storages.

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::file_index::StoredFile;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId};

use super::BegunMigration;
use crate::columns::ColumnError;
use crate::{SqliteStore, columns};

/// The namespace of the documents with the metadata of files, in a data folder.
pub(super) const NAMESPACE: &str = "files";
/// How many files are moved before the position is stored.
const PAGE: usize = 32;

/// Copies the contents of files to the storage that the processes of a cluster use.
#[async_trait]
pub trait FileTransfer: Send + Sync {
    /// Copies the content of a file, unless it is there already. Fails if the storage of the cluster fails;
    /// the migration is then run again.
    async fn copy_content(&self, file: &StoredFile) -> Result<ContentCopy, StoreError>;

    /// The output of a job, with placeholders for its files that the processes of a cluster can render.
    fn adapt_output(&self, account: &Account, job: &JobId, output: &Bytes) -> Bytes;
}

/// The result of copying the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentCopy {
    /// The storage of the cluster has the content.
    Stored,
    /// The content is missing or damaged. The file is not moved.
    Unreadable,
}

/// The metadata of a file.
pub(crate) struct ExportedFile {
    /// The name of its document: determines the order of files.
    pub(crate) name: String,
    pub(crate) account: Account,
    pub(crate) file: StoredFile,
}

/// The files of a data folder.
pub(crate) struct ExportedFiles {
    /// In the order of their names.
    pub(crate) items: Vec<ExportedFile>,
    /// Documents that cannot be read.
    pub(crate) unreadable: usize,
}

/// The files that have not expired.
pub(super) async fn read_all(
    source: &SqliteStore,
    now: Timestamp,
) -> Result<ExportedFiles, StoreError> {
    let mut files = ExportedFiles {
        items: Vec::new(),
        unreadable: 0,
    };
    for (name, json) in source.all(NAMESPACE, "").await? {
        match parse(&name, &json) {
            Ok((account, file)) if file.is_unexpired(now) => files.items.push(ExportedFile {
                name,
                account,
                file,
            }),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(
                    name,
                    ?error,
                    "failed to read the document of a file, left it in the data folder"
                );
                files.unreadable += 1;
            }
        }
    }
    files.items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn parse(name: &str, json: &[u8]) -> Result<(Account, StoredFile), ColumnError> {
    let (account, _) = name
        .split_once('/')
        .ok_or_else(|| columns::corrupt("its name has no account"))?;
    let file = serde_json::from_slice(json).map_err(columns::corrupt)?;
    Ok((columns::account(account)?, file))
}

/// Replaces the placeholders for files in the output of a job.
pub(super) fn adapt_output(files: &dyn FileTransfer, record: &mut JobRecord) {
    let output = record
        .completion
        .as_mut()
        .and_then(|end| end.output.as_mut());
    if let Some(output) = output {
        *output = files.adapt_output(&record.spec.account, &record.spec.id, output);
    }
}

impl BegunMigration<'_> {
    /// Returns how many files cannot be read. The rows exist before the contents, so that no process removes
    /// a content that is being copied, and are completed afterwards.
    pub(super) async fn move_files(
        &self,
        transfer: &dyn FileTransfer,
        after: &str,
    ) -> Result<usize, StoreError> {
        let mut found = read_all(&self.migration.source, Timestamp::now()).await?;
        found.items.retain(|file| *file.name > *after);
        for page in found.items.chunks(PAGE) {
            self.target.import_files_begin(page).await?;
            let mut stored = Vec::with_capacity(page.len());
            for exported in page {
                match transfer.copy_content(&exported.file).await? {
                    ContentCopy::Stored => stored.push(true),
                    ContentCopy::Unreadable => {
                        stored.push(false);
                        found.unreadable += 1;
                    }
                }
            }
            self.target.import_files_end(page, &stored).await?;
        }
        Ok(found.unreadable)
    }
}
