//! Small things of this face that callers make, and that are kept as documents.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::Account;
use tidegate_core::store::{Documents, StoreError};

use super::reply::ApiError;

/// How many things of one kind an account may have: all of them are looked through for a list.
pub(super) const MAX_THINGS: usize = 1000;

/// Things of one kind.
pub(super) struct DocumentCollection<'a> {
    pub(super) documents: &'a dyn Documents,
    pub(super) name: &'static str,
}

impl DocumentCollection<'_> {
    /// Keeps something new; `false` when there is one with this name. It holds the moment when it was made, so
    /// what another caller has made is not the same.
    pub(super) async fn add<T: Serialize>(&self, name: &str, thing: &T) -> Result<bool, ApiError> {
        let json = written(thing);
        Ok(self
            .documents
            .put_new(self.name, name, json.clone())
            .await?
            == json)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let kept = self.documents.fetch(self.name, name).await?;
        kept.map(|json| self.read(name, &json)).transpose()
    }

    pub(super) async fn all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<T>, ApiError> {
        let kept = self.documents.all(self.name, prefix).await?;
        kept.into_iter()
            .map(|(name, json)| self.read(&name, &json))
            .collect()
    }

    /// Changes something, and gives it as it is then; `None` when there is none. What others change in the
    /// meantime is not lost: then `change` is called again with what they have made of it.
    pub(super) async fn change<T>(
        &self,
        name: &str,
        mut change: impl FnMut(&mut T) -> Result<(), ApiError>,
    ) -> Result<Option<T>, ApiError>
    where
        T: Serialize + DeserializeOwned,
    {
        while let Some(was) = self.documents.fetch(self.name, name).await? {
            let mut thing = self.read(name, &was)?;
            change(&mut thing)?;
            if self
                .documents
                .swap(self.name, name, &was, written(&thing))
                .await?
            {
                return Ok(Some(thing));
            }
        }
        Ok(None)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.documents.remove(self.name, name).await?)
    }

    fn read<T: DeserializeOwned>(&self, name: &str, json: &Bytes) -> Result<T, ApiError> {
        let corrupt =
            |error| StoreError::Corrupt(format!("`{name}` on the shelf `{}`: {error}", self.name));
        Ok(serde_json::from_slice(json).map_err(corrupt)?)
    }
}

fn written<T: Serialize>(thing: &T) -> Bytes {
    serde_json::to_vec(thing)
        .expect("our documents have string keys")
        .into()
}

/// What the names of an account's things begin with. The account of everybody has none, so that nobody can be
/// called like it.
pub(super) fn prefix_of(account: &Account) -> String {
    if account.is_anonymous() {
        "/".to_owned()
    } else {
        format!("{account}/")
    }
}

/// Whether a text can name something in a path.
pub(super) fn is_name(text: &str) -> bool {
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
    fn names_stand_in_paths() {
        for good in ["a", "my-app", "a.b_c-1", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
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
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn nobody_reaches_what_is_everybodys() {
        assert_ne!(
            prefix_of(&Account::ANONYMOUS),
            prefix_of(&Account::parse("anonymous").unwrap())
        );
    }
}
