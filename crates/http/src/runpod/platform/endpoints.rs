//! The endpoints of this server, and the keys of their workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::hmac;
use tidegate_core::store::{Documents, StoreError};
use tidegate_remote::Remote;
use tidegate_service::Jobs;

/// What the models of endpoints are called: `runpod/NAME`.
pub const MODELS: &str = "runpod/";
/// The longest name of an endpoint, in bytes.
const MAX_LEN: usize = 64;
/// Where the names of endpoints are kept.
const SHELF: &str = "runpod-endpoints";
/// What every worker's key begins with, so that those who look for leaked secrets know it.
const PREFIX: &str = "tgw_";

/// An endpoint: a desk, and the workers that come for its jobs.
pub struct Endpoint {
    /// Its name in paths.
    pub name: String,
    /// Takes the jobs in.
    pub jobs: Jobs,
    /// Gives them to workers.
    pub remote: Remote,
}

/// A text cannot be the name of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of an endpoint has 1 to {MAX_LEN} small letters, digits, `-` and `_`")]
pub struct InvalidName;

/// Opens an endpoint with this name.
type Open = dyn Fn(&str) -> Endpoint + Send + Sync;

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Its name cannot be used.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// It could not be written down.
    #[error("the endpoint cannot be kept")]
    Unkept(#[from] StoreError),
}

/// All endpoints. Cloning gives another handle.
#[derive(Clone)]
pub struct Endpoints {
    all: Arc<ArcSwap<BTreeMap<String, Arc<Endpoint>>>>,
    open: Arc<Open>,
    /// Where their names are kept.
    documents: Option<Arc<dyn Documents>>,
    /// Writers take turns, so that none is opened twice.
    opening: Arc<Mutex<()>>,
}

impl Endpoints {
    /// None yet; `open` makes them.
    pub fn new(documents: Option<Arc<dyn Documents>>, open: impl Fn(&str) -> Endpoint + Send + Sync + 'static) -> Self {
        Self { all: Arc::default(), open: Arc::new(open), documents, opening: Arc::default() }
    }

    /// The endpoint with this name.
    pub fn get(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.all.load().get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        self.all.load().values().cloned().collect()
    }

    /// Opens those that a server before this one had.
    pub async fn resume(&self) -> Result<(), StoreError> {
        let Some(documents) = &self.documents else { return Ok(()) };
        for (name, _) in documents.all(SHELF, "").await? {
            self.opened(&name);
        }
        Ok(())
    }

    /// Opens an endpoint, unless there is one with this name. It is there after a restart too.
    pub async fn add(&self, name: &str) -> Result<Arc<Endpoint>, NotOpened> {
        let name = checked(name)?;
        if let Some(documents) = &self.documents {
            documents.put_new(SHELF, name, Bytes::from_static(b"{}")).await?;
        }
        Ok(self.opened(name))
    }

    fn opened(&self, name: &str) -> Arc<Endpoint> {
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.get(name).unwrap_or_else(|| {
            let endpoint = Arc::new((self.open)(name));
            let mut all = BTreeMap::clone(&self.all.load());
            all.insert(name.to_owned(), Arc::clone(&endpoint));
            self.all.store(Arc::new(all));
            endpoint
        })
    }
}

/// A name that can be part of a path and of a model's name.
fn checked(name: &str) -> Result<&str, InvalidName> {
    let allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    let fits = !name.is_empty() && name.len() <= MAX_LEN && name.as_bytes().iter().all(allowed);
    if fits { Ok(name) } else { Err(InvalidName) }
}

/// Makes and checks the keys of workers: one for each endpoint, good for no other, and made again after a
/// restart from the same secret.
pub struct WorkerKeys(hmac::Key);

impl WorkerKeys {
    /// Whoever knows the secret can be a worker of every endpoint.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key of an endpoint's workers.
    pub fn key(&self, endpoint: &str) -> String {
        let tag = hmac::sign(&self.0, endpoint.as_bytes());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether this is the key of the endpoint's workers.
    pub(super) fn fits(&self, endpoint: &str, key: &[u8]) -> bool {
        let tag = key.strip_prefix(PREFIX.as_bytes()).and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok());
        tag.is_some_and(|tag| hmac::verify(&self.0, endpoint.as_bytes(), &tag).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_one_endpoint() {
        let keys = WorkerKeys::new(b"secret");
        let key = keys.key("echo");
        assert!(keys.fits("echo", key.as_bytes()));
        assert!(WorkerKeys::new(b"secret").fits("echo", key.as_bytes()), "also after a restart");
        assert!(!keys.fits("other", key.as_bytes()) && !WorkerKeys::new(b"else").fits("echo", key.as_bytes()));
        for bad in ["", "tgw_", "tgw_AAAA", key.trim_start_matches(PREFIX)] {
            assert!(!keys.fits("echo", bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn names_are_parts_of_paths() {
        for good in ["a", "echo-2", "x_y", &"a".repeat(64)] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "a/b", "a b", "..", "é", &"a".repeat(65)] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
