//! Writes the metadata of the files of a migration. The position in the source is stored in the transaction
//! that makes the files before it visible.

use std::sync::Arc;

use tidegate_core::store::StoreError;
use tokio_postgres::Client;

use super::PostgresStore;
use super::error::PgError;
use super::files::{self, NewFile};
use super::import::{locked_state, put_state};
use crate::migration::ExportedFile;

impl PostgresStore {
    /// Adds rows that are not complete, unless an earlier call has completed them.
    pub(crate) async fn import_files_begin(&self, page: &[ExportedFile]) -> Result<(), StoreError> {
        self.connections
            .change(page, |client, page| Box::pin(begin(client, page)))
            .await
    }

    /// Completes the rows whose content is stored, and removes the others.
    pub(crate) async fn import_files_end(
        &self,
        page: &[ExportedFile],
        stored: &[bool],
    ) -> Result<(), StoreError> {
        self.connections
            .change((page, stored), |client, (page, stored)| {
                Box::pin(end(client, page, stored))
            })
            .await
    }
}

async fn begin(client: &Client, page: &[ExportedFile]) -> Result<(), PgError> {
    let after = locked_state(client).await?.files_after;
    for exported in page.iter().filter(|exported| exported.name > after) {
        files::reserve(client, &new_row(exported)).await?;
    }
    Ok(())
}

async fn end(client: &Client, page: &[ExportedFile], stored: &[bool]) -> Result<(), PgError> {
    let mut state = locked_state(client).await?;
    for (exported, is_stored) in page.iter().zip(stored) {
        if exported.name <= state.files_after {
            continue;
        }
        let (account, id) = (&exported.account, &*exported.file.id);
        if *is_stored {
            // A process of the cluster removes an incomplete row after some time.
            files::reserve(client, &new_row(exported)).await?;
            files::complete(client, account, id).await?;
        } else {
            files::remove(client, account, id).await?;
        }
        state.files_after.clone_from(&exported.name);
    }
    put_state(client, &state).await
}

fn new_row(exported: &ExportedFile) -> NewFile {
    NewFile::new(&exported.account, &Arc::new(exported.file.clone()), None)
}
