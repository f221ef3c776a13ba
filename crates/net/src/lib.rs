//! The outer door: the one HTTP client. Nobody else opens a socket outward.
//!
//! Webhooks, downloads of inputs and uploads of outputs go through [`Client`]. Addresses that strangers
//! name pass the guard ([`AllowedNetworks`]) three times: as they are written ([`Client::check`]), when their
//! name is resolved, and at each redirect. Addresses that the operator chose do not.

mod address;
mod client;
mod download;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod guard;
mod resolve;
#[cfg(test)]
mod tests;
mod upload;

use std::time::Duration;

pub use address::{InvalidUrl, parse_url};
pub use client::{Client, HttpRequest, HttpResponse, WebhookResponse, unguarded_client};
pub use error::Error;
pub use guard::{AllowedNetworks, InvalidNetwork};
pub use reqwest::header;
pub use url::Url;

/// Whom a URL names, without the parts that may hold secrets.
pub fn host_of(url: &Url) -> String {
    error::host_of(url)
}

/// The names and limits of outward calls.
#[derive(Debug, Clone)]
pub struct Config {
    /// Sent with every call unless the caller says otherwise.
    pub user_agent: String,
    /// Sent with downloads of inputs instead, when set.
    pub download_user_agent: Option<String>,
    /// Where webhooks and downloads may go.
    pub networks: AllowedNetworks,
    /// The largest file in either direction, in bytes.
    pub max_file: u64,
    /// The longest that a download may take without a byte.
    pub download_stall_timeout: Duration,
    /// The least that a download must bring in each window of time.
    pub download_min_speed: MinSpeed,
    /// The longest that a download may take as a whole.
    pub download_timeout: Duration,
    /// The longest that a webhook's receiver may take.
    pub webhook_timeout: Duration,
    /// The longest that an upload may take, and a second more for each MiB.
    pub upload_timeout: Duration,
}

/// The slowest speed that is put up with.
#[derive(Debug, Clone, Copy)]
pub struct MinSpeed {
    /// So many bytes
    pub bytes: u64,
    /// in each such time.
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            download_user_agent: None,
            networks: AllowedNetworks::public(),
            max_file: 5 * 1024 * 1024 * 1024,
            download_stall_timeout: Duration::from_secs(10),
            download_min_speed: MinSpeed {
                bytes: 30 * 1024,
                window: Duration::from_secs(30),
            },
            download_timeout: Duration::from_secs(60 * 60),
            webhook_timeout: Duration::from_secs(30),
            upload_timeout: Duration::from_secs(25),
        }
    }
}
