//! Documents of a server that has no place to write: they live as long as it does.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::store::{Documents, StoreError};

/// By shelf and name.
type DocumentMap = BTreeMap<(String, String), Bytes>;

/// Documents in memory.
#[derive(Debug, Default)]
pub struct MemoryDocuments(Mutex<DocumentMap>);

impl MemoryDocuments {
    fn with<R>(&self, f: impl FnOnce(&mut DocumentMap) -> R) -> Result<R, StoreError> {
        Ok(f(&mut self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)))
    }
}

fn key(shelf: &str, name: &str) -> (String, String) {
    (shelf.to_owned(), name.to_owned())
}

#[async_trait]
impl Documents for MemoryDocuments {
    async fn put(&self, shelf: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        self.with(|documents| {
            documents.insert(key(shelf, name), json);
        })
    }

    async fn put_new(&self, shelf: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        self.with(|documents| documents.entry(key(shelf, name)).or_insert(json).clone())
    }

    async fn swap(
        &self,
        shelf: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        self.with(|documents| match documents.get_mut(&key(shelf, name)) {
            Some(kept) if *kept == *was => {
                *kept = json;
                true
            }
            Some(_) | None => false,
        })
    }

    async fn fetch(&self, shelf: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.with(|documents| documents.get(&key(shelf, name)).cloned())
    }

    async fn remove(&self, shelf: &str, name: &str) -> Result<bool, StoreError> {
        self.with(|documents| documents.remove(&key(shelf, name)).is_some())
    }

    async fn all(&self, shelf: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.with(|documents| {
            let from_here = documents.range(key(shelf, prefix)..);
            let those =
                from_here.take_while(|((on, name), _)| on == shelf && name.starts_with(prefix));
            those
                .map(|((_, name), json)| (name.clone(), json.clone()))
                .collect()
        })
    }
}
