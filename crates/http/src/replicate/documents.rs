//! Resources of this API that users create and that are stored as documents.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::Account;
use tidegate_core::store::{Documents, StoreError};

use super::reply::ApiError;

/// The most resources of one kind per account: a list reads all of them.
pub(super) const MAX_PER_ACCOUNT: usize = 1000;

/// The documents of one namespace.
pub(super) struct DocumentCollection<'a> {
    pub(super) documents: &'a dyn Documents,
    pub(super) namespace: &'static str,
}

impl DocumentCollection<'_> {
    /// Stores a new document; `false` if the name exists. Documents hold their time of creation, so
    /// an equal document of another request does not occur.
    pub(super) async fn add<T: Serialize>(
        &self,
        name: &str,
        document: &T,
    ) -> Result<bool, ApiError> {
        let json = to_json(document);
        Ok(self
            .documents
            .put_new(self.namespace, name, json.clone())
            .await?
            == json)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let found = self.documents.fetch(self.namespace, name).await?;
        found.map(|json| self.read(name, &json)).transpose()
    }

    pub(super) async fn all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<T>, ApiError> {
        let found = self.documents.all(self.namespace, prefix).await?;
        found
            .into_iter()
            .map(|(name, json)| self.read(&name, &json))
            .collect()
    }

    /// Changes a document and returns it; `None` if there is none. If another request changes it at
    /// the same time, `change` is called again with the new document.
    pub(super) async fn change<T>(
        &self,
        name: &str,
        mut change: impl FnMut(&mut T) -> Result<(), ApiError>,
    ) -> Result<Option<T>, ApiError>
    where
        T: Serialize + DeserializeOwned,
    {
        while let Some(was) = self.documents.fetch(self.namespace, name).await? {
            let mut document = self.read(name, &was)?;
            change(&mut document)?;
            if self
                .documents
                .swap(self.namespace, name, &was, to_json(&document))
                .await?
            {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.documents.remove(self.namespace, name).await?)
    }

    fn read<T: DeserializeOwned>(&self, name: &str, json: &Bytes) -> Result<T, ApiError> {
        let corrupt = |error| {
            StoreError::Corrupt(format!(
                "document `{name}` in namespace `{}`: {error}",
                self.namespace
            ))
        };
        Ok(serde_json::from_slice(json).map_err(corrupt)?)
    }
}

fn to_json<T: Serialize>(document: &T) -> Bytes {
    serde_json::to_vec(document)
        .expect("our documents have string keys")
        .into()
}

/// The prefix of the names of an account's documents. The anonymous account has an empty name,
/// which no other account can have.
pub(super) fn key_prefix(account: &Account) -> String {
    if account.is_anonymous() {
        "/".to_owned()
    } else {
        format!("{account}/")
    }
}

/// Whether a name is valid as a segment of a path.
pub(super) fn is_valid_name(text: &str) -> bool {
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_NAME
        && text.chars().all(plain)
        && text.starts_with(ends)
        && text.ends_with(ends)
}

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_segments_of_a_path() {
        for good in ["a", "my-app", "a.b_c-1", &"x".repeat(64)] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            ".",
            "..",
            "A",
            "a b",
            "a/b",
            "é",
            &"x".repeat(65),
        ] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }

    #[test]
    fn the_anonymous_account_is_not_the_account_anonymous() {
        assert_ne!(
            key_prefix(&Account::ANONYMOUS),
            key_prefix(&Account::parse("anonymous").unwrap())
        );
    }
}
