//! The stored files that an input names. They are looked up before the input is checked, because checking
//! does not wait.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::Account;
use tidegate_core::file_index::StoredFile;
use tidegate_core::store::StoreError;
use tidegate_net::Url;

use super::Files;
use crate::files::store::file_id_in;

/// The path before the id of a file in a URL, as JSON texts contain it: some programs write `\/`.
const PATHS: [&str; 2] = ["/v1/files/", r"\/v1\/files\/"];
/// The most files that are looked up. An input with more files is refused anyway.
const MAX_FILES: usize = 2048;

/// Stored files of an account, by id.
#[derive(Debug, Default)]
pub(crate) struct StoredInputs(HashMap<String, Arc<StoredFile>>);

impl StoredInputs {
    /// The stored file that this URL names.
    pub(super) fn find(&self, text: &str) -> Option<&Arc<StoredFile>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(file_id_in(&Url::parse(text).ok()?)?)
    }
}

impl Files {
    /// Looks up the stored files of the account that an input may name.
    pub(crate) async fn stored_inputs(
        &self,
        account: &Account,
        input: &Bytes,
    ) -> Result<StoredInputs, StoreError> {
        let mut stored = StoredInputs::default();
        let Some(file_store) = self.file_store.as_deref() else {
            return Ok(stored);
        };
        for id in ids_in(input) {
            if let Some(file) = file_store.find(account, &id).await? {
                stored.0.insert(id, file);
            }
        }
        Ok(stored)
    }
}

/// The texts in a JSON text that may be ids of files.
fn ids_in(json: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(json) else {
        return Vec::new();
    };
    let mut ids: Vec<String> = Vec::new();
    for path in PATHS {
        for at in memchr::memmem::find_iter(json, path).take(MAX_FILES) {
            let rest = &text[at + path.len()..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
            let id = &rest[..end.unwrap_or(rest.len())];
            if !id.is_empty() && !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_urls() {
        let input =
            br#"{"a": "https://h/v1/files/a1", "b": ["http:\/\/h\/x\/v1\/files\/b2\/download?x=1"],
            "c": "/v1/files/", "d": "https://h/v1/files/a1/name.png"}"#;
        assert_eq!(ids_in(input), ["a1", "b2"]);
        assert!(ids_in(b"{}").is_empty());
    }
}
