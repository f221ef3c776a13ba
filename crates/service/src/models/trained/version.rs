//! Versions that were trained, as they are kept: the name of the model whose code they run, and their weights.
//!
//! What is kept says nothing about the code itself, which may change; each time it does, the version gets another
//! id. The weights are a file of the cabinet that stays as long as the version, or a text of the training's own,
//! such as the address of a place that only the model knows how to read.

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

/// The documents.
const NAMESPACE: &str = "trained";
/// The ids of versions that were removed, which jobs may still name that a killed server has left.
const REMOVED: &str = "trained-removed";
/// How many of its ids a version remembers; jobs that still wait under an older one are lost.
const MAX_IDS: usize = 100;
/// The longest text, in bytes, that can be given to a model in its environment.
const MAX_TEXT: usize = 16 * 1024;

/// A version that was trained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedVersion {
    /// The model that it is a version of, `owner/name`.
    pub model: String,
    /// Who has trained it; empty if that was nobody in particular.
    account: String,
    /// The job that has.
    training: String,
    /// The model whose code it runs, `owner/name`.
    pub source: String,
    /// What is given to that code.
    pub weights: Weights,
    /// When it was made.
    pub created_at: Timestamp,
    /// What it is called, and was before the code changed; newest first and never none.
    pub(crate) ids: Vec<String>,
}

/// What was learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// A file of the cabinet.
    File {
        /// Which.
        id: String,
        /// How it is called for the model.
        name: String,
        /// Of its bytes, in hexadecimal digits.
        sha256: String,
    },
    /// Given to the model as it is.
    Text(String),
}

impl TrainedVersion {
    /// 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// `owner/name:id`
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.model, self.id())
    }

    /// Whether this is, or was, its id.
    pub fn has_or_had_id(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// Whether this account has trained it.
    pub fn is_owned_by(&self, account: &Account) -> bool {
        self.account == name_of(account)
    }

    /// Whether it came of this training of this account.
    pub fn is_result_of(&self, account: &Account, training: &JobId) -> bool {
        self.is_owned_by(account) && self.training == training.as_str()
    }

    /// The same with the code of another version of its source.
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

    /// Its id with the code of this version of its source. The model is part of it: the same weights may be a
    /// version of several, and whoever names only the version means one of them.
    pub fn id_with_source_version(&self, source_version: &str) -> String {
        digest(&[source_version, &self.weights.digest(), &self.model])
    }

    /// What it is kept under: it stays the same when the code changes.
    pub fn key(&self) -> String {
        format!(
            "{}:{}",
            self.model,
            digest(&[&self.source, &self.weights.digest()])
        )
    }

    /// Where the weights are, if they are brought into this folder; or the text that they are.
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

/// Where versions that were trained are written down, and their weights kept.
pub struct TrainedVersions {
    documents: Arc<dyn Documents>,
    file_store: Option<Arc<FileStore>>,
}

impl TrainedVersions {
    /// A register that keeps files only if there is a cabinet.
    pub fn new(documents: Arc<dyn Documents>, file_store: Option<Arc<FileStore>>) -> Self {
        Self {
            documents,
            file_store,
        }
    }

    /// All of them, oldest first. Weights that belong to none are removed: to be called once, before trainings end.
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

    /// Writes down what a training gave, with the code of this version of a model. Nothing if there is nothing that
    /// a model could be given.
    pub async fn record_training(
        &self,
        training: &Training<'_>,
        source: &str,
        source_version: &str,
    ) -> Result<Option<TrainedVersion>, FileStoreError> {
        let file = self.file_store.as_ref().and_then(|file_store| {
            Some((
                file_store,
                file_store.resolve_weights(training.account, training.id, training.weights)?,
            ))
        });
        let weights = match &file {
            Some((_, file)) => Weights::File {
                id: String::new(),
                name: file.name.clone(),
                sha256: file.sha256.clone(),
            },
            None if is_given_as_it_is(training.weights) => {
                Weights::Text(training.weights.to_owned())
            }
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
        // What was learned before is the same version.
        let known = self.known(&trained).await?.map(|known| TrainedVersion {
            created_at: trained.created_at,
            ..known
        });
        let mut trained = known.unwrap_or(trained).with_source_version(source_version);
        if let Some((file_store, file)) = file {
            let kept = file_store
                .store_weights(&trained.owner(), &file, &trained.key())
                .await?;
            trained.weights = Weights::File {
                id: kept.id.clone(),
                name: kept.name.clone(),
                sha256: kept.sha256.clone(),
            };
        }
        self.put(&trained).await?;
        Ok(Some(trained))
    }

    async fn known(&self, trained: &TrainedVersion) -> Result<Option<TrainedVersion>, StoreError> {
        let key = trained.key();
        let kept = self.documents.fetch(NAMESPACE, &key).await?;
        kept.map(|json| read(&key, &json)).transpose()
    }

    /// Writes a version down, in the place of what it was before.
    pub async fn put(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let json = serde_json::to_vec(trained)
            .expect("it has string keys")
            .into();
        self.documents.put(NAMESPACE, &trained.key(), json).await
    }

    /// Forgets a version, and then its weights.
    pub async fn remove(&self, trained: &TrainedVersion) -> Result<(), StoreError> {
        let key = trained.key();
        for id in &trained.ids {
            self.documents
                .put(REMOVED, id, Bytes::from_static(b"{}"))
                .await?;
        }
        self.documents.remove(NAMESPACE, &key).await?;
        match &self.file_store {
            Some(file_store) => file_store.remove_weights(|of| of == key).await,
            None => Ok(()),
        }
    }

    /// The ids of those that were removed.
    pub async fn removed(&self) -> Result<Vec<String>, StoreError> {
        Ok(self
            .documents
            .all(REMOVED, "")
            .await?
            .into_iter()
            .map(|(id, _)| id)
            .collect())
    }

    /// Brings the weights into an empty folder. A copy: the model may write into it.
    pub async fn copy_weights(
        &self,
        trained: &TrainedVersion,
        folder: &Path,
    ) -> Result<(), String> {
        let Weights::File { id, .. } = &trained.weights else {
            return Ok(());
        };
        let gone = || "their file is gone".to_owned();
        let file_store = self.file_store.as_ref().ok_or_else(gone)?;
        let file = file_store.find(&trained.owner(), id).ok_or_else(gone)?;
        file_store
            .copy(&file, &trained.weights_path(folder))
            .await
            .map_err(|error| chain(&error).to_string())
    }
}

fn read(name: &str, json: &[u8]) -> Result<TrainedVersion, StoreError> {
    serde_json::from_slice(json).map_err(|error| {
        StoreError::Corrupt(format!("`{name}` on the models `{NAMESPACE}`: {error}"))
    })
}

/// A data URI is a file that nobody keeps, and what does not fit into the environment cannot be given to a model.
fn is_given_as_it_is(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0') && !text.starts_with("data:")
}

/// Of several texts; none of them can be mistaken for a part of another.
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

/// As it is written down: nobody can be called like nobody in particular.
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
    fn the_id_follows_the_code_and_the_key_does_not() {
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
            "back again, and nothing twice"
        );
    }

    #[test]
    fn model_code_and_weights_make_the_id() {
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
    fn what_a_model_cannot_be_given_is_no_weights() {
        for good in ["https://example.com/w.bin", "s3://bucket/w", "w"] {
            assert!(is_given_as_it_is(good), "{good}");
        }
        for bad in ["", "data:;base64,AA==", "a\0b", &"x".repeat(MAX_TEXT + 1)] {
            assert!(!is_given_as_it_is(bad), "{}", bad.len());
        }
    }
}
