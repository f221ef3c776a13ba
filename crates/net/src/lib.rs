//! The outer door: the one HTTP client. Nobody else opens a socket outward.
//!
//! Webhooks, downloads of inputs and uploads of outputs go through [`Client`]. It is built when it is
//! first used, because reading the system's certificates takes longer than a whole prediction.

mod address;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use reqwest::redirect;
use tokio::io::AsyncWriteExt;

pub use address::{BadAddress, check_address};
pub use reqwest::header;
pub use url::Url;

/// The names and limits of outward calls.
#[derive(Debug, Clone)]
pub struct Config {
    /// Sent with every call unless the caller says otherwise.
    pub user_agent: String,
    /// Sent with downloads of inputs instead, when set.
    pub download_user_agent: Option<String>,
    /// The longest that a download may take without a byte.
    pub download_stall: Duration,
    /// The largest download, in bytes.
    pub download_limit: u64,
    /// The longest that a webhook's receiver may take.
    pub webhook_timeout: Duration,
    /// The longest that an upload may take.
    pub upload_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            download_user_agent: None,
            download_stall: Duration::from_secs(10),
            download_limit: 5 * 1024 * 1024 * 1024,
            webhook_timeout: Duration::from_secs(30),
            upload_timeout: Duration::from_secs(25),
        }
    }
}

/// The one HTTP client.
pub struct Client {
    config: Config,
    /// For downloads and uploads, where an address may point on to another.
    following: OnceLock<reqwest::Client>,
    /// For webhooks, which go to the address that was given and nowhere else.
    strict: OnceLock<reqwest::Client>,
}

/// A call outward did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer came.
    #[error("could not reach `{host}`")]
    Unreachable {
        /// Whom we called, without path and credentials.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The answer began and did not come to its end.
    #[error("the answer of `{host}` broke off")]
    BrokeOff {
        /// Whom we called.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The answer was not a success.
    #[error("`{host}` answered {status}")]
    Status {
        /// Whom we called.
        host: String,
        /// What it said.
        status: reqwest::StatusCode,
    },
    /// The body is larger than allowed.
    #[error("the file at `{host}` has more than {limit} bytes")]
    TooLarge {
        /// Whom we called.
        host: String,
        /// The limit.
        limit: u64,
    },
    /// Nothing came for too long.
    #[error("`{host}` sent nothing for {after:?}")]
    Stalled {
        /// Whom we called.
        host: String,
        /// How long we waited.
        after: Duration,
    },
    /// The file could not be written or read.
    #[error("could not access `{path}`")]
    File {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Client {
    /// A client with these limits; nothing is built yet.
    pub fn new(config: Config) -> Self {
        Self { config, following: OnceLock::new(), strict: OnceLock::new() }
    }

    /// Posts a webhook; the status is the receiver's answer, its body is ignored.
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: Bytes) -> Result<reqwest::StatusCode, Error> {
        let client = self.strict.get_or_init(|| self.build(redirect::Policy::none()));
        let sent = client.post(url.clone()).headers(headers).timeout(self.config.webhook_timeout).body(body).send().await;
        sent.map(|answer| answer.status()).map_err(|source| Error::Unreachable { host: host_of(url), source: source.without_url() })
    }

    /// One call of our own to another server, for the command line: a `GET`, or a `POST` of JSON, with a
    /// token if the server wants one. The answer may take as long as a model takes.
    pub async fn fetch(&self, url: &Url, token: Option<&str>, json: Option<Bytes>) -> Result<(reqwest::StatusCode, Bytes), Error> {
        let unreachable = |source: reqwest::Error| Error::Unreachable { host: host_of(url), source: source.without_url() };
        let request = match json {
            Some(json) => self.following().post(url.clone()).header(CONTENT_TYPE, "application/json").body(json),
            None => self.following().get(url.clone()),
        };
        let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        Ok((status, answer.bytes().await.map_err(unreachable)?))
    }

    /// Downloads `url` into a new file at `path`, readable by its owner only.
    pub async fn download(&self, url: &Url, path: &Path) -> Result<(), Error> {
        let (host, limit, stall) = (host_of(url), self.config.download_limit, self.config.download_stall);
        let stalled = || Error::Stalled { host: host.clone(), after: stall };
        let unreachable = |source: reqwest::Error| Error::Unreachable { host: host.clone(), source: source.without_url() };
        let mut request = self.following().get(url.clone());
        if let Some(name) = &self.config.download_user_agent {
            request = request.header(USER_AGENT, name);
        }
        let answer = tokio::time::timeout(stall, request.send()).await.map_err(|_| stalled())?.map_err(unreachable)?;
        if !answer.status().is_success() {
            return Err(Error::Status { host, status: answer.status() });
        }
        let failed = |source| Error::File { path: path.display().to_string(), source };
        let mut file = new_private(path).await.map_err(failed)?;
        let (mut body, mut total) = (answer.bytes_stream(), 0u64);
        while let Some(chunk) = tokio::time::timeout(stall, body.next()).await.map_err(|_| stalled())? {
            let chunk = chunk.map_err(|source| Error::BrokeOff { host: host.clone(), source: source.without_url() })?;
            total += chunk.len() as u64;
            if total > limit {
                return Err(Error::TooLarge { host, limit });
            }
            file.write_all(&chunk).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)
    }

    /// Uploads the file at `path` with `PUT`; the answer is where it can be found from now on.
    pub async fn upload(&self, url: &Url, headers: HeaderMap, path: &Path) -> Result<String, Error> {
        let host = host_of(url);
        let body = tokio::fs::read(path).await.map_err(|source| Error::File { path: path.display().to_string(), source })?;
        let sent = self.following().put(url.clone()).headers(headers).timeout(self.config.upload_timeout).body(body).send().await;
        let answer = sent.map_err(|source| Error::Unreachable { host: host.clone(), source: source.without_url() })?;
        if !answer.status().is_success() {
            return Err(Error::Status { host, status: answer.status() });
        }
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let place = location.map_or_else(|| answer.url().to_string(), str::to_owned);
        // Signed upload addresses carry their signature in the query; it is not for others.
        Ok(place.split(['?', '#']).next().unwrap_or_default().to_owned())
    }

    fn following(&self) -> &reqwest::Client {
        self.following.get_or_init(|| self.build(redirect::Policy::limited(5)))
    }

    fn build(&self, redirects: redirect::Policy) -> reqwest::Client {
        // Installing it twice is harmless: another client of this process was first.
        rustls::crypto::ring::default_provider().install_default().ok();
        let agent = HeaderValue::from_str(&self.config.user_agent).unwrap_or(HeaderValue::from_static("tidegate"));
        let builder = reqwest::Client::builder().user_agent(agent).redirect(redirects).connect_timeout(Duration::from_secs(10));
        builder.build().expect("the settings are fixed and the provider is installed")
    }
}

/// Whom a URL names, without the parts that may hold secrets.
fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}

async fn new_private(path: &Path) -> std::io::Result<tokio::fs::File> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).await
}
