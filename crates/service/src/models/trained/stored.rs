//! Stored trained versions and their weights.
//!
//! The weights are a file in the file store that is kept as long as the version, or a text that the
//! training returned, such as a URL that only the model can read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::file_index::StoredFile;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::trained_version::{NewTrainedVersion, TrainedVersion, Weights};
use tidegate_core::{chain, clock};

use crate::files::file_name;
use crate::files::store::{FileStore, FileStoreError};
use crate::models::trained::training::Training;

/// The namespace of the stored versions.
const NAMESPACE: &str = "trained";
/// The namespace of the ids of removed versions. Jobs of a previous run may still refer to them.
const REMOVED: &str = "trained-removed";
/// The namespace and the name of a document that changes with every version that is stored or removed.
const LAST_CHANGE: (&str, &str) = ("trained-change", "last");
/// The longest text, in bytes, that is passed to a model in an environment variable.
const MAX_TEXT: usize = 16 * 1024;

/// Provides the weights of trained versions.
#[async_trait]
pub trait WeightsSource: Send + Sync {
    /// Copies the weights into an empty folder. It is a copy because the model may write to it. The error is
    /// a message for the log: another attempt would not succeed either.
    async fn copy_weights(&self, trained: &TrainedVersion, folder: &Path) -> Result<(), String>;
}

/// The path of the weights after [`WeightsSource::copy_weights`] into this folder, or the text of text
/// weights.
pub fn weights_path(weights: &Weights, folder: &Path) -> PathBuf {
    match weights {
        Weights::File { name, .. } => folder.join(file_name::from_text(name)),
        Weights::Text(text) => PathBuf::from(text),
    }
}

/// The stored trained versions and their weights.
pub struct TrainedVersions {
    documents: Arc<dyn Documents>,
    file_store: Option<Arc<FileStore>>,
}

impl TrainedVersions {
    /// Without a file store, only text weights can be stored.
    pub fn new(documents: Arc<dyn Documents>, file_store: Option<Arc<FileStore>>) -> Self {
        Self {
            documents,
            file_store,
        }
    }

    /// All versions, oldest first.
    pub async fn all(&self) -> Result<Vec<TrainedVersion>, StoreError> {
        let mut all: Vec<TrainedVersion> = Vec::new();
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            all.push(read(&name, &json)?);
        }
        all.sort_by_key(|trained| trained.created_at);
        Ok(all)
    }

    /// Removes weights that belong to no version and are this old: the process that stored them was killed.
    /// Other processes may store the version of new ones at any time.
    pub async fn remove_unused_weights(&self, age: Duration) -> Result<(), StoreError> {
        let Some(file_store) = &self.file_store else {
            return Ok(());
        };
        let before = clock::now().checked_sub(age).unwrap_or(Timestamp::MIN);
        // First the weights: a version is stored after its weights.
        let old = file_store.weights_before(before).await?;
        if old.is_empty() {
            return Ok(());
        }
        let all = self.all().await?;
        let keys: HashSet<String> = all.iter().map(TrainedVersion::key).collect();
        file_store
            .remove_weights(|file| old.contains(&file.id) && !is_of_any(file, &keys))
            .await
    }

    /// Stores the result of a training, to run with the code of this version of `source`. `None` if
    /// the weights are nothing that a model can load.
    pub async fn record_training(
        &self,
        training: &Training<'_>,
        source: &str,
        source_version: &str,
    ) -> Result<Option<TrainedVersion>, FileStoreError> {
        let Training {
            account,
            id,
            weights,
            ..
        } = training;
        let file = match &self.file_store {
            Some(file_store) => {
                let found = file_store.resolve_weights(account, id, weights).await?;
                found.map(|file| (file_store, file))
            }
            None => None,
        };
        let weights = match &file {
            Some((_, file)) => Weights::File {
                id: String::new(),
                name: file.name.clone(),
                sha256: file.sha256.clone(),
            },
            None if is_text_weights(training.weights) => Weights::Text(training.weights.to_owned()),
            None => return Ok(None),
        };
        let trained = TrainedVersion::from(NewTrainedVersion {
            model: training.destination,
            account,
            training: id,
            source,
            source_version,
            weights,
            created_at: clock::now(),
        });
        // The same weights from another training are the same version.
        let known = self.fetch(&trained).await?.map(|mut known| {
            known.created_at = trained.created_at;
            known.with_source_version(source_version)
        });
        let mut trained = known.unwrap_or(trained);
        if let Some((file_store, file)) = file {
            let stored = file_store
                .store_weights(&trained.owner(), &file, &trained.key())
                .await?;
            trained.weights = Weights::File {
                id: stored.id.clone(),
                name: stored.name.clone(),
                sha256: stored.sha256.clone(),
            };
        }
        self.put(&trained).await?;
        Ok(Some(trained))
    }

    async fn fetch(&self, trained: &TrainedVersion) -> Result<Option<TrainedVersion>, StoreError> {
        let key = trained.key();
        let document = self.documents.fetch(NAMESPACE, &key).await?;
        document.map(|json| read(&key, &json)).transpose()
    }

    /// Stores a version, or replaces the stored one with the same key.
    async fn put(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        self.documents
            .put(NAMESPACE, &trained.key(), to_json(trained))
            .await?;
        self.record_change(trained).await
    }

    /// Changes the stored version with this key; returns it, or `None` if it was removed meanwhile. Other
    /// processes may change it at the same time.
    pub(super) async fn update(
        &self,
        key: &str,
        change: impl Fn(&TrainedVersion) -> TrainedVersion,
    ) -> Result<Option<TrainedVersion>, StoreError> {
        loop {
            let Some(json) = self.documents.fetch(NAMESPACE, key).await? else {
                return Ok(None);
            };
            let stored = read(key, &json)?;
            let changed = change(&stored);
            if changed == stored {
                return Ok(Some(stored));
            }
            let swap = self
                .documents
                .swap(NAMESPACE, key, &json, to_json(&changed));
            if swap.await? {
                self.record_change(&changed).await?;
                return Ok(Some(changed));
            }
        }
    }

    /// Removes a version, then its weights.
    pub async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let key = trained.key();
        for id in trained.ids() {
            self.documents
                .put(REMOVED, id, Bytes::from_static(b"{}"))
                .await?;
        }
        self.documents.remove(NAMESPACE, &key).await?;
        self.record_change(trained).await?;
        match &self.file_store {
            Some(file_store) => {
                let is_own = |file: &StoredFile| file.weights_of.as_deref() == Some(&*key);
                file_store.remove_weights(is_own).await
            }
            None => Ok(()),
        }
    }

    /// Makes other processes read the versions.
    async fn record_change(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let (namespace, name) = LAST_CHANGE;
        let change = serde_json::to_vec(&(trained.full_name(), clock::now()));
        let change = change.expect("a name and a time serialize");
        self.documents.put(namespace, name, change.into()).await
    }

    /// A document that differs after each change.
    pub(super) async fn last_change(&self) -> Result<Option<Bytes>, StoreError> {
        let (namespace, name) = LAST_CHANGE;
        self.documents.fetch(namespace, name).await
    }

    /// The ids of removed versions.
    pub async fn removed(&self) -> Result<Vec<String>, StoreError> {
        Ok(self
            .documents
            .all(REMOVED, "")
            .await?
            .into_iter()
            .map(|(id, _)| id)
            .collect())
    }

    /// The file with the weights of a version; `None` if they are a text.
    pub async fn weights_file(
        &self,
        trained: &TrainedVersion,
    ) -> Result<Option<Arc<StoredFile>>, StoreError> {
        match (&trained.weights, &self.file_store) {
            (Weights::File { id, .. }, Some(file_store)) => {
                file_store.find(&trained.owner(), id).await
            }
            (Weights::File { .. }, None) | (Weights::Text(_), _) => Ok(None),
        }
    }
}

#[async_trait]
impl WeightsSource for TrainedVersions {
    async fn copy_weights(&self, trained: &TrainedVersion, folder: &Path) -> Result<(), String> {
        if let Weights::Text(_) = &trained.weights {
            return Ok(());
        }
        let missing = || "the file of the weights is missing".to_owned();
        let file_store = self.file_store.as_ref().ok_or_else(missing)?;
        let found = self.weights_file(trained).await;
        let file = found
            .map_err(|error| chain(&error).to_string())?
            .ok_or_else(missing)?;
        file_store
            .copy(&file, &weights_path(&trained.weights, folder))
            .await
            .map_err(|error| chain(&error).to_string())
    }
}

fn to_json(trained: &TrainedVersion) -> Bytes {
    let json = serde_json::to_vec(trained);
    json.expect("string keys serialize").into()
}

/// Whether a file has the weights of one of these versions.
fn is_of_any(file: &StoredFile, keys: &HashSet<String>) -> bool {
    file.weights_of
        .as_ref()
        .is_some_and(|key| keys.contains(key))
}

fn read(name: &str, json: &[u8]) -> Result<TrainedVersion, StoreError> {
    serde_json::from_slice(json).map_err(|error| {
        StoreError::Corrupt(format!(
            "document `{name}` in namespace `{NAMESPACE}`: {error}"
        ))
    })
}

/// Whether the weights can be passed as text. A data URI cannot: it is a file that was not stored.
/// Text that does not fit into an environment variable cannot either.
fn is_text_weights(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0') && !text.starts_with("data:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_weights_must_fit_into_an_environment_variable() {
        for good in ["https://example.com/w.bin", "s3://bucket/w", "w"] {
            assert!(is_text_weights(good), "{good}");
        }
        for bad in ["", "data:;base64,AA==", "a\0b", &"x".repeat(MAX_TEXT + 1)] {
            assert!(!is_text_weights(bad), "{}", bad.len());
        }
    }
}
