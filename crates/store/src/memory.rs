//! Documents of a server without a data folder. They are lost when the server exits.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::store::{Documents, StoreError};

/// Documents by namespace and name.
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

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

#[async_trait]
impl Documents for MemoryDocuments {
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        self.with(|documents| {
            documents.insert(key(namespace, name), json);
        })
    }

    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        self.with(|documents| {
            documents
                .entry(key(namespace, name))
                .or_insert(json)
                .clone()
        })
    }

    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        self.with(|documents| match documents.get_mut(&key(namespace, name)) {
            Some(stored) if *stored == *was => {
                *stored = json;
                true
            }
            Some(_) | None => false,
        })
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.with(|documents| documents.get(&key(namespace, name)).cloned())
    }

    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        self.with(|documents| documents.remove(&key(namespace, name)).is_some())
    }

    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.with(|documents| {
            let from_prefix = documents.range(key(namespace, prefix)..);
            let matching = from_prefix
                .take_while(|((on, name), _)| on == namespace && name.starts_with(prefix));
            matching
                .map(|((_, name), json)| (name.clone(), json.clone()))
                .collect()
        })
    }
}
