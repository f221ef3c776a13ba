//! A version that a training made: the name of the model whose code it runs, and its weights.
//!
//! The code is not part of it and may change; each time it does, the version gets another id.

use jiff::Timestamp;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::{Account, JobId};

/// The number of ids that a version remembers; waiting jobs with an older id are lost.
const MAX_IDS: usize = 100;

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
    ids: Vec<String>,
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

/// What a new version is made of.
pub struct NewTrainedVersion<'a> {
    /// The model that gets the version, `owner/name`.
    pub model: &'a str,
    /// The account that trained it.
    pub account: &'a Account,
    /// The training job.
    pub training: &'a JobId,
    /// The model whose code it runs, `owner/name`.
    pub source: &'a str,
    /// The version of that model.
    pub source_version: &'a str,
    /// The weights.
    pub weights: Weights,
    /// When it is created.
    pub created_at: Timestamp,
}

impl From<NewTrainedVersion<'_>> for TrainedVersion {
    fn from(new: NewTrainedVersion<'_>) -> Self {
        let without_id = Self {
            model: new.model.to_owned(),
            account: name_of(new.account).to_owned(),
            training: new.training.to_string(),
            source: new.source.to_owned(),
            weights: new.weights,
            created_at: new.created_at,
            ids: Vec::new(),
        };
        without_id.with_source_version(new.source_version)
    }
}

impl TrainedVersion {
    /// The current id: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The current id and the former ones, newest first.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// The full name, `owner/name:id`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.model, self.id())
    }

    /// Whether this is its current id or a former one.
    pub fn has_or_had_id(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// The account that trained it.
    pub fn owner(&self) -> Account {
        Account::parse(&self.account).unwrap_or(Account::ANONYMOUS)
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
}

impl Weights {
    fn digest(&self) -> String {
        match self {
            Self::File { sha256, .. } => sha256.clone(),
            Self::Text(text) => digest(&["text", text]),
        }
    }
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
mod tests {
    use super::*;

    fn sample() -> TrainedVersion {
        NewTrainedVersion {
            model: "me/mine",
            account: &Account::parse("me").unwrap(),
            training: &JobId::parse("t").unwrap(),
            source: "local/base",
            source_version: "v1",
            weights: Weights::Text("w".to_owned()),
            created_at: Timestamp::UNIX_EPOCH,
        }
        .into()
    }

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
}
