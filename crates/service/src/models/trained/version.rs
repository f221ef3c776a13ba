//! Stored trained versions: the name of the model whose code they run, and their weights.
//!
//! The code is not stored and may change; each time it does, the version gets another id. The
//! weights are a file in the file store that is kept as long as the version, or a text that the
//! training returned, such as a URL that only the model can read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId, chain};

use crate::files::file_name;
use crate::files::store::{FileStore, FileStoreError};
use crate::models::trained::training::Training;

/// The namespace of the stored versions.
const NAMESPACE: &str = "trained";
/// The namespace of the ids of removed versions. Jobs of a previous run may still refer to them.
const REMOVED: &str = "trained-removed";
/// The number of ids that a version remembers; waiting jobs with an older id are lost.
const MAX_IDS: usize = 100;
/// The longest text, in bytes, that is passed to a model in an environment variable.
const MAX_TEXT: usize = 16 * 1024;

/// A trained version of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedVersion {
    /// The model that it is a version of, `owner/name`.
    pub model: String,
    /// The account that trained it; empty for the anonymous account.
    account: String,
    /// The id of the training job.
    training: String,
    /// The model whose code it runs, `owner/name`.
    pub source: String,
    /// The weights that the code loads.
    pub weights: Weights,
    /// When it was created.
    pub created_at: Timestamp,
    /// The current id and the ids before the code changed, newest first; never empty.
    pub(crate) ids: Vec<String>,
}

/// The weights of a trained version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// A file in the file store.
    File {
        /// The id of the file.
        id: String,
        /// The file name that the model sees.
        name: String,
        /// The SHA-256 digest of the content, in hexadecimal digits.
        sha256: String,
    },
    /// A text that is passed to the model unchanged.
    Text(String),
}

impl TrainedVersion {
    /// The current id: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The full name, `owner/name:id`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.model, self.id())
    }

    /// Whether this is its current id or a former one.
    pub fn has_or_had_id(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// Whether this account trained it.
    pub fn is_owned_by(&self, account: &Account) -> bool {
        self.account == name_of(account)
    }

    /// Whether this training of this account created it.
    pub fn is_result_of(&self, account: &Account, training: &JobId) -> bool {
        self.is_owned_by(account) && self.training == training.as_str()
    }

    /// The same version with the code of another version of its source.
    pub fn with_source_version(&self, source_version: &str) -> Self {
        let id = self.id_with_source_version(source_version);
        let mut ids = self.ids.clone();
        ids.retain(|known| *known != id);
        ids.insert(0, id);
        ids.truncate(MAX_IDS);
        Self {
            ids,
            ..self.clone()
        }
    }

    /// Its id with the code of this version of its source. The digest includes the model: the same
    /// weights may be a version of several models, and an id must identify one of them.
    pub fn id_with_source_version(&self, source_version: &str) -> String {
        digest(&[source_version, &self.weights.digest(), &self.model])
    }

    /// The key of its document: it stays the same when the code changes.
    pub fn key(&self) -> String {
        format!(
            "{}:{}",
            self.model,
            digest(&[&self.source, &self.weights.digest()])
        )
    }

    /// The path of the weights after [`TrainedVersions::copy_weights`] into this folder, or the
    /// text of text weights.
    pub fn weights_path(&self, folder: &Path) -> PathBuf {
        match &self.weights {
            Weights::File { name, .. } => folder.join(file_name::from_text(name)),
            Weights::Text(text) => PathBuf::from(text),
        }
    }

    fn owner(&self) -> Account {
        Account::parse(&self.account).unwrap_or(Account::ANONYMOUS)
    }
}

impl Weights {
    fn digest(&self) -> String {
        match self {
            Self::File { sha256, .. } => sha256.clone(),
            Self::Text(text) => digest(&["text", text]),
        }
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

    /// All versions, oldest first. Removes weights that belong to none: call it once at startup,
    /// before any training ends.
    pub async fn all(&self) -> Result<Vec<TrainedVersion>, StoreError> {
        let mut all: Vec<TrainedVersion> = Vec::new();
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            all.push(read(&name, &json)?);
        }
        all.sort_by_key(|trained| trained.created_at);
        if let Some(file_store) = &self.file_store {
            let keys: HashSet<String> = all.iter().map(TrainedVersion::key).collect();
            file_store.remove_weights(|key| !keys.contains(key)).await?;
        }
        Ok(all)
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
        let trained = TrainedVersion {
            model: training.destination.to_owned(),
            account: name_of(training.account).to_owned(),
            training: training.id.to_string(),
            source: source.to_owned(),
            weights,
            created_at: Timestamp::now(),
            ids: Vec::new(),
        };
        // The same weights from another training are the same version.
        let known = self.fetch(&trained).await?.map(|known| TrainedVersion {
            created_at: trained.created_at,
            ..known
        });
        let mut trained = known.unwrap_or(trained).with_source_version(source_version);
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
    pub async fn put(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let json = serde_json::to_vec(trained)
            .expect("string keys serialize")
            .into();
        self.documents.put(NAMESPACE, &trained.key(), json).await
    }

    /// Removes a version, then its weights.
    pub async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let key = trained.key();
        for id in &trained.ids {
            self.documents
                .put(REMOVED, id, Bytes::from_static(b"{}"))
                .await?;
        }
        self.documents.remove(NAMESPACE, &key).await?;
        match &self.file_store {
            Some(file_store) => file_store.remove_weights(|owner| owner == key).await,
            None => Ok(()),
        }
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

    /// Copies the weights into an empty folder. It is a copy because the model may write to it.
    pub async fn copy_weights(
        &self,
        trained: &TrainedVersion,
        folder: &Path,
    ) -> Result<(), String> {
        let Weights::File { id, .. } = &trained.weights else {
            return Ok(());
        };
        let missing = || "the file of the weights is missing".to_owned();
        let file_store = self.file_store.as_ref().ok_or_else(missing)?;
        let found = file_store.find(&trained.owner(), id).await;
        let file = found
            .map_err(|error| chain(&error).to_string())?
            .ok_or_else(missing)?;
        file_store
            .copy(&file, &trained.weights_path(folder))
            .await
            .map_err(|error| chain(&error).to_string())
    }
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

/// The digest of several texts. Their lengths are included, so that different splits of the same
/// text have different digests.
fn digest(parts: &[&str]) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The stored form of an account. No account has an empty name, so that stands for the anonymous
/// one.
fn name_of(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

#[cfg(test)]
pub(crate) fn sample() -> TrainedVersion {
    let trained = TrainedVersion {
        model: "me/mine".to_owned(),
        account: "me".to_owned(),
        training: "t".to_owned(),
        source: "local/base".to_owned(),
        weights: Weights::Text("w".to_owned()),
        created_at: Timestamp::UNIX_EPOCH,
        ids: Vec::new(),
    };
    trained.with_source_version("v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_depends_on_the_code_and_the_key_does_not() {
        let first = sample();
        let second = first.with_source_version("v2");
        assert_ne!(first.id(), second.id());
        assert_eq!(first.key(), second.key());
        assert!(
            second.has_or_had_id(first.id())
                && second.has_or_had_id(second.id())
                && !first.has_or_had_id(second.id())
        );
        assert_eq!(
            second.with_source_version("v1").ids,
            [first.id(), second.id()],
            "the first id is current again and is listed once"
        );
    }

    #[test]
    fn the_id_depends_on_model_code_and_weights() {
        let one = sample();
        let file = |sha256: &str| Weights::File {
            id: "a".to_owned(),
            name: "w".to_owned(),
            sha256: sha256.to_owned(),
        };
        let others = [
            TrainedVersion {
                model: "me/other".to_owned(),
                ..one.clone()
            },
            TrainedVersion {
                weights: Weights::Text("x".to_owned()),
                ..one.clone()
            },
            TrainedVersion {
                weights: file("00"),
                ..one.clone()
            },
            TrainedVersion {
                weights: file("01"),
                ..one.clone()
            },
        ];
        let mut ids: Vec<String> = others
            .iter()
            .chain([&one])
            .map(|trained| trained.id_with_source_version("v1"))
            .collect();
        assert!(ids.iter().all(|id| id.len() == 64), "{ids:?}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 5);
        let again = TrainedVersion {
            training: "another".to_owned(),
            created_at: Timestamp::MAX,
            ..one.clone()
        };
        assert_eq!(again.id_with_source_version("v1"), one.id());
    }

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
