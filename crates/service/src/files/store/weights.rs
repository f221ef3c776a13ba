//! Weights of trained versions: stored files that exist as long as their version.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::file_index::StoredFile;
use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId, clock};
use tidegate_net::Url;

use super::output_urls::text_of_placeholder;
use super::{FileStore, FileStoreError, file_id_in, random};

impl FileStore {
    /// The file that a text in the output of this job names: by placeholder, an output file of the
    /// job; by URL, a file of the account.
    pub(crate) async fn resolve_weights(
        &self,
        account: &Account,
        job: &JobId,
        text: &str,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        let url = Url::parse(text).ok();
        let id = match text_of_placeholder(text) {
            Some(sealed) => self.published(account, job, sealed).map(|file| file.id),
            None => url.as_ref().and_then(file_id_in).map(str::to_owned),
        };
        match id {
            Some(id) => self.find(account, &id).await,
            None => Ok(None),
        }
    }

    /// Stores the content of a file as the weights of a version, unless the version has weights.
    pub(crate) async fn store_weights(
        &self,
        account: &Account,
        file: &StoredFile,
        version: &str,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        let is_of_version = |(owner, weights): &(Account, Arc<StoredFile>)| {
            owner == account && weights.weights_of.as_deref() == Some(version)
        };
        let mut existing = self.index.weights().await?.into_iter();
        if let Some((_, existing)) = existing.find(is_of_version) {
            return Ok(existing);
        }
        let id = JobId::from_random(random::bits()).to_string();
        let weights = Arc::new(StoredFile {
            id,
            created_at: clock::now(),
            expires_at: None,
            job: None,
            weights_of: Some(version.to_owned()),
            ..file.clone()
        });
        if self.index.add_copy(account, &file.id, &weights).await? {
            Ok(weights)
        } else {
            Err(FileStoreError::Io(std::io::Error::other(
                "the file was removed in the meantime",
            )))
        }
    }

    /// The ids of the weights that were stored before this time.
    pub(crate) async fn weights_before(
        &self,
        before: Timestamp,
    ) -> Result<HashSet<String>, StoreError> {
        let weights = self.index.weights().await?.into_iter();
        let old = weights.filter(|(_, weights)| weights.created_at <= before);
        Ok(old.map(|(_, weights)| weights.id.clone()).collect())
    }

    /// Removes the weights that `filter` accepts.
    pub(crate) async fn remove_weights(
        &self,
        filter: impl Fn(&StoredFile) -> bool,
    ) -> Result<(), StoreError> {
        for (account, weights) in self.index.weights().await? {
            if filter(&weights) {
                self.index.remove(&account, &weights.id).await?;
            }
        }
        self.index.remove_released(&*self.blobs.blobs).await;
        Ok(())
    }
}
