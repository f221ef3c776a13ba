//! The HTTP client for all outgoing requests. No other crate opens outgoing connections.
//!
//! Webhooks, downloads of inputs and uploads of outputs go through [`Client`]. URLs from requests are
//! checked against [`AllowedNetworks`] three times: when they are parsed ([`Client::check`]), when their
//! host is resolved, and at each redirect. URLs from the operator's configuration are not checked.
//! Requests of the router to its backends go through [`upstream::UpstreamPool`], and its questions to name
//! servers through [`dns::NameResolver`].

mod allowed_networks;
mod client;
pub mod dns;
mod download;
mod error;
mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod guarded_resolver;
mod server_trust;
mod sse_parser;
#[cfg(test)]
mod tests;
mod upload;
pub mod upstream;
mod url_check;
mod webhook_transport;

use std::sync::Arc;
use std::time::Duration;

pub use allowed_networks::{AllowedNetworks, InvalidNetwork};
pub use client::{
    Client, HttpRequest, HttpResponse, StreamedResponse, WebhookResponse, unguarded_client,
};
pub use error::Error;
pub use forward::{ForwardedRequest, ForwardedResponse, Forwarder};
pub use reqwest::Client as PlainClient;
pub use reqwest::Method;
pub use reqwest::header;
pub use server_trust::{ServerTrust, TrustError};
pub use sse_parser::{SseEvent, SseEventTooLarge, SseParser};
pub use url::Url;
pub use url_check::{InvalidUrl, parse_url};
pub use webhook_transport::WebhookTransport;

/// Host and port of a URL, without the parts that may contain secrets.
pub fn host_of(url: &Url) -> String {
    error::host_of(url)
}

/// The limits and headers of outgoing requests.
#[derive(Debug, Clone)]
pub struct Config {
    /// The `User-Agent` of every request.
    pub user_agent: String,
    /// The `User-Agent` of downloads of inputs, if it differs.
    pub download_user_agent: Option<String>,
    /// Which certificate of a server that the operator chose is accepted.
    pub server_trust: ServerTrust,
    /// The networks that webhooks and downloads may reach.
    pub networks: AllowedNetworks,
    /// The largest file in either direction, in bytes.
    pub max_file: u64,
    /// How long a download may receive no bytes.
    pub download_stall_timeout: Duration,
    /// The minimum speed of a download.
    pub download_min_speed: MinSpeed,
    /// The longest duration of a download.
    pub download_timeout: Duration,
    /// The longest duration of a webhook request.
    pub webhook_timeout: Duration,
    /// Delivers webhooks instead of the network, in simulations.
    pub webhook_transport: Option<Arc<dyn WebhookTransport>>,
    /// The longest duration of an upload, plus one second per MiB.
    pub upload_timeout: Duration,
}

/// A minimum speed: at least `bytes` in each `window`.
#[derive(Debug, Clone, Copy)]
pub struct MinSpeed {
    /// The number of bytes.
    pub bytes: u64,
    /// The time in which they must arrive.
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            download_user_agent: None,
            server_trust: ServerTrust::System,
            networks: AllowedNetworks::public(),
            max_file: 5 * 1024 * 1024 * 1024,
            download_stall_timeout: Duration::from_secs(10),
            download_min_speed: MinSpeed {
                bytes: 30 * 1024,
                window: Duration::from_secs(30),
            },
            download_timeout: Duration::from_secs(60 * 60),
            webhook_timeout: Duration::from_secs(30),
            webhook_transport: None,
            upload_timeout: Duration::from_secs(25),
        }
    }
}
