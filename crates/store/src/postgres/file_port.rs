//! Implements the port of the index of files, which many processes share.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::blobs::{Blobs, is_digest};
use tidegate_core::file_index::{FileIndex, FileReservation, ReserveError, StoredFile};
use tidegate_core::store::{Store, StoreError};
use tidegate_core::{Account, chain};

use super::PostgresStore;
use super::connection::Connections;
use super::files::{self, CHUNK, COLLECTED_AFTER, ExpiryTimes, NewFile};
use crate::columns;

/// How many contents one transaction removes. It holds up uploads meanwhile.
const COLLECTED_AT_ONCE: usize = 50;

#[async_trait]
impl FileIndex for PostgresStore {
    async fn reserve(
        &self,
        account: &Account,
        file: &Arc<StoredFile>,
        quota: Option<u64>,
    ) -> Result<Box<dyn FileReservation>, ReserveError> {
        let new = NewFile::new(account, file, quota);
        let exceeded = self
            .connections
            .change(new, |client, new| Box::pin(files::reserve(client, new)))
            .await?;
        match (exceeded, quota) {
            (Some(used), Some(max)) => Err(ReserveError::Quota { used, max }),
            _ => Ok(Box::new(ReservedRow {
                connections: self.connections.clone(),
                account: account.clone(),
                id: file.id.clone(),
            })),
        }
    }

    async fn add_copy(
        &self,
        account: &Account,
        from: &str,
        file: &Arc<StoredFile>,
    ) -> Result<bool, StoreError> {
        let new = NewFile::new(account, file, None);
        self.connections
            .change((new, from), |client, (new, from)| {
                Box::pin(files::add_copy(client, new, from))
            })
            .await
    }

    async fn remove(&self, account: &Account, id: &str) -> Result<bool, StoreError> {
        remove(&self.connections, account, id).await
    }

    async fn find(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        let found = self
            .connections
            .read((account, id), |client, (account, id)| {
                Box::pin(files::find(client, account, id))
            })
            .await?;
        Ok(found.filter(|file| file.is_unexpired(Timestamp::now())))
    }

    fn find_in_memory(&self, _account: &Account, _id: &str) -> Option<Arc<StoredFile>> {
        None
    }

    async fn uploads(&self, account: &Account) -> Result<Vec<Arc<StoredFile>>, StoreError> {
        let mut found = self
            .connections
            .read(account, |client, account| {
                Box::pin(files::uploads(client, account))
            })
            .await?;
        found.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(found)
    }

    async fn used_bytes(&self, account: &Account) -> Result<u64, StoreError> {
        self.connections
            .read(account, |client, account| {
                Box::pin(files::used_bytes(client, account, ""))
            })
            .await
    }

    async fn weights(&self) -> Result<Vec<(Account, Arc<StoredFile>)>, StoreError> {
        self.connections
            .read((), |client, ()| Box::pin(files::weights(client)))
            .await
    }

    async fn remove_expired(
        &self,
        now: Timestamp,
        outputs_before: Timestamp,
        _jobs: &dyn Store,
    ) -> Result<(), StoreError> {
        loop {
            let times = ExpiryTimes {
                now: columns::micros(now),
                outputs_before: columns::micros(outputs_before),
            };
            let removed = self
                .connections
                .change(times, |client, times| {
                    Box::pin(files::remove_expired(client, times))
                })
                .await?;
            if removed < CHUNK {
                return Ok(());
            }
        }
    }

    async fn remove_released(&self, _blobs: &dyn Blobs) {}

    async fn collect(&self, blobs: &dyn Blobs) -> Result<(), StoreError> {
        let mut old = match blobs.names_older_than(COLLECTED_AFTER).await {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to list the contents of files");
                return Ok(());
            }
        };
        old.retain(|name| is_digest(name));
        for names in old.chunks(COLLECTED_AT_ONCE) {
            let is_alone = self
                .connections
                .change((blobs, names), |client, (blobs, names)| {
                    Box::pin(files::collect(client, *blobs, names))
                })
                .await?;
            if !is_alone {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A row whose content is being written.
struct ReservedRow {
    connections: Connections,
    account: Account,
    id: String,
}

#[async_trait]
impl FileReservation for ReservedRow {
    async fn complete(self: Box<Self>) -> Result<(), StoreError> {
        let is_there = self
            .connections
            .change((&self.account, &*self.id), |client, (account, id)| {
                Box::pin(files::complete(client, account, id))
            })
            .await?;
        if is_there {
            return Ok(());
        }
        Err(StoreError::Unavailable(
            "the content of the file took too long to store".to_owned(),
        ))
    }

    async fn abandon(self: Box<Self>) {
        if let Err(error) = remove(&self.connections, &self.account, &self.id).await {
            // It is removed later.
            tracing::debug!(error = %chain(&error), "failed to remove the row of a file");
        }
    }
}

async fn remove(
    connections: &Connections,
    account: &Account,
    id: &str,
) -> Result<bool, StoreError> {
    connections
        .change_once((account, id), |client, (account, id)| {
            Box::pin(files::remove(client, account, id))
        })
        .await
}
