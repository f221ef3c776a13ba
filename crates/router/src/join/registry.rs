//! The registrations in force.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::check::{JoinRefusal, allows};
use crate::discovery::FoundEndpoint;
use crate::fleet::{BackendKind, BackendUrl, Fleet};

/// The most registrations of a router.
const MAX_REGISTRATIONS: usize = 10_000;

/// A backend that has registered itself.
pub(super) struct Registration {
    pub(super) url: BackendUrl,
    pub(super) models: Vec<String>,
    pub(super) kind: Option<BackendKind>,
    pub(super) permits: Option<u32>,
    pub(super) key_hash: String,
    pub(super) expires: Instant,
}

/// All registrations by URL.
#[derive(Default)]
pub(crate) struct Registrations(BTreeMap<String, Registration>);

impl Registrations {
    /// Adds or renews a registration. Returns whether it is new. A URL that another key has registered
    /// belongs to this key from now on.
    pub(super) fn put(&mut self, registration: Registration) -> Result<bool, JoinRefusal> {
        let url = registration.url.to_string();
        if self.0.len() >= MAX_REGISTRATIONS && !self.0.contains_key(&url) {
            let limit = MAX_REGISTRATIONS;
            return Err(JoinRefusal::TooMany { limit });
        }
        Ok(self.0.insert(url, registration).is_none())
    }

    /// Removes the registration of a URL, if the key is the one that registered it.
    pub(super) fn remove(&mut self, url: &BackendUrl, key_hash: &str) -> bool {
        let url = url.to_string();
        let is_own = self
            .0
            .get(&url)
            .is_some_and(|registration| registration.key_hash == key_hash);
        is_own && self.0.remove(&url).is_some()
    }

    /// Removes the registrations whose time is over and returns their URLs.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<String> {
        let expired = self
            .0
            .extract_if(.., |_, registration| registration.expires <= now);
        expired.map(|(url, _)| url).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.0
            .values()
            .map(|registration| registration.expires)
            .min()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The backends of a model, as far as the join keys of the configuration still allow them.
    pub(crate) fn of(&self, model: &str, fleet: &Fleet) -> Vec<FoundEndpoint> {
        let serving = self.0.values().filter(|registration| {
            let mut keys = fleet.join_keys.iter();
            let key = keys.find(|key| key.key_hash == registration.key_hash);
            registration.models.iter().any(|name| name == model)
                && key.is_some_and(|key| allows(key, model))
        });
        let found = serving.map(|registration| FoundEndpoint {
            permits: registration.permits,
            kind: registration.kind,
            ..FoundEndpoint::new(registration.url.clone())
        });
        found.collect()
    }
}
