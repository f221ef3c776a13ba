//! Weights of trained versions: stored files that exist as long as their version.

use std::sync::Arc;

use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId};
use tidegate_net::Url;

use super::{FileStore, FileStoreError, StoredFile, random};
use crate::files::store::output_urls::id_in_placeholder;

impl FileStore {
    /// The file that a text in the output of this job names: by placeholder, an output file of the
    /// job; by URL, a file of the account.
    pub(crate) fn resolve_weights(
        &self,
        account: &Account,
        job: &JobId,
        text: &str,
    ) -> Option<Arc<StoredFile>> {
        match id_in_placeholder(text) {
            Some(id) => self.find_output(account, job, id),
            None => self.find_by_url(account, &Url::parse(text).ok()?),
        }
    }

    /// Stores the content of a file as the weights of a version, unless the version has weights.
    pub(crate) async fn store_weights(
        &self,
        account: &Account,
        file: &StoredFile,
        version: &str,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        if let Some(existing) = self.weights_of(account, version) {
            return Ok(existing);
        }
        let blob = self.blobs.acquire(&file.sha256).await;
        if !self
            .entries()
            .values()
            .any(|entry| entry.file.id == file.id)
        {
            return Err(FileStoreError::Io(std::io::Error::other(
                "the file was removed in the meantime",
            )));
        }
        let id = JobId::from_random(random::bits()).to_string();
        let weights = StoredFile {
            id,
            expires_at: None,
            job: None,
            weights_of: Some(version.to_owned()),
            ..file.clone()
        };
        let weights = Arc::new(weights);
        self.insert(account, Arc::clone(&weights), blob).await?;
        Ok(weights)
    }

    /// Removes the weights of the versions that `filter` accepts.
    pub(crate) async fn remove_weights(
        &self,
        filter: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        for key in self.keys_where(|entry| entry.file.weights_of.as_deref().is_some_and(&filter)) {
            self.remove_entry(&key).await?;
        }
        self.blobs.remove_unreferenced().await;
        Ok(())
    }

    fn weights_of(&self, account: &Account, version: &str) -> Option<Arc<StoredFile>> {
        let entries = self.entries();
        let has_version = |file: &&Arc<StoredFile>| file.weights_of.as_deref() == Some(version);
        entries
            .values()
            .filter(|entry| entry.account == *account)
            .map(|entry| &entry.file)
            .find(has_version)
            .cloned()
    }
}
