//! The accounts of a fleet and what each may use.

use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::Account;
use tidegate_core::rate_counter::Rate;

/// An account and its limits.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountConfig {
    /// The name.
    pub account: Account,
    /// The SHA-256 of its token, in hexadecimal digits.
    pub token_hash: String,
    /// The most requests of the account that may run or wait at once.
    pub max_concurrent: Option<u32>,
    /// The most requests in a period.
    pub rate: Option<Rate>,
    /// The class of its requests in the queues.
    pub priority: PriorityClass,
    /// Whether the account may operate the router.
    pub admin: bool,
}

impl fmt::Debug for AccountConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountConfig")
            .field("account", &self.account)
            .field("max_concurrent", &self.max_concurrent)
            .field("rate", &self.rate)
            .field("priority", &self.priority)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

/// A key with which backends register themselves, and what it allows.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinKey {
    /// The name, for logs.
    pub name: String,
    /// The SHA-256 of the key, in hexadecimal digits.
    pub key_hash: String,
    /// The models that a backend may join; `*` is all of them.
    pub models: Vec<String>,
    /// The networks in which its address must be.
    pub networks: Vec<IpNet>,
    /// The longest time for which one registration lasts.
    pub max_ttl: Duration,
}

impl fmt::Debug for JoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinKey")
            .field("name", &self.name)
            .field("models", &self.models)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

/// The class of a request in the queue of its model: a higher class is served first, but no class
/// is starved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PriorityClass {
    /// Bulk work.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Interactive work.
    High,
}
