//! Weights of versions that were trained. They are contents as all others, and stay as long as their version.

use std::sync::Arc;

use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId};
use tidegate_net::Url;

use super::{FileStore, FileStoreError, StoredFile, random};
use crate::files::store::output_urls::id_in_placeholder;

impl FileStore {
    /// The file that a text in what this job gave stands for: one that it gave itself, or another of the account's.
    pub(crate) fn resolve_weights(
        &self,
        account: &Account,
        job: &JobId,
        text: &str,
    ) -> Option<Arc<StoredFile>> {
        match id_in_placeholder(text) {
            Some(id) => self.find_output(account, job, id),
            None => self.find_by_address(account, &Url::parse(text).ok()?),
        }
    }

    /// Keeps the content of a file as the weights of a version, once.
    pub(crate) async fn store_weights(
        &self,
        account: &Account,
        file: &StoredFile,
        version: &str,
    ) -> Result<Arc<StoredFile>, FileStoreError> {
        if let Some(known) = self.weights_of(account, version) {
            return Ok(known);
        }
        let blob = self.blobs.acquire(&file.sha256).await;
        if !self
            .entries()
            .values()
            .any(|entry| entry.file.id == file.id)
        {
            return Err(FileStoreError::Io(std::io::Error::other(
                "the file was removed meanwhile",
            )));
        }
        let id = JobId::from_random(random::bits()).to_string();
        let kept = StoredFile {
            id,
            expires_at: None,
            job: None,
            weights_of: Some(version.to_owned()),
            ..file.clone()
        };
        let kept = Arc::new(kept);
        self.insert(account, Arc::clone(&kept), blob).await?;
        Ok(kept)
    }

    /// Removes the weights of these versions.
    pub(crate) async fn remove_weights(&self, of: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        for key in self.keys_where(|entry| entry.file.weights_of.as_deref().is_some_and(&of)) {
            self.remove_entry(&key).await?;
        }
        self.blobs.remove_unreferenced().await;
        Ok(())
    }

    fn weights_of(&self, account: &Account, version: &str) -> Option<Arc<StoredFile>> {
        let known = self.entries();
        let is = |file: &&Arc<StoredFile>| file.weights_of.as_deref() == Some(version);
        known
            .values()
            .filter(|entry| entry.account == *account)
            .map(|entry| &entry.file)
            .find(is)
            .cloned()
    }
}
