//! Errors of outgoing requests. No error contains the path, the query or the credentials of a URL:
//! errors appear in logs and in API responses.

use std::error::Error as StdError;
use std::time::Duration;

use reqwest::StatusCode;
use url::Url;

use crate::InvalidUrl;

/// An outgoing request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL, or one that it redirects to, is not allowed.
    #[error("requests to `{host}` are not allowed")]
    Refused {
        /// The host of the URL.
        host: String,
        /// Why it is not allowed.
        source: InvalidUrl,
    },
    /// The HTTP client could not be created, for instance because there are no file descriptors left.
    #[error("could not create an HTTP client for `{host}`")]
    NoClient {
        /// The host of the URL.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
    /// There was no response.
    #[error("could not reach `{host}`")]
    Unreachable {
        /// The host of the URL.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The connection was lost while the response was read.
    #[error("the response of `{host}` is incomplete")]
    Incomplete {
        /// The host of the URL.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The status of the response is not a success.
    #[error("`{host}` responded with {status}")]
    Status {
        /// The host of the URL.
        host: String,
        /// The status.
        status: StatusCode,
    },
    /// The body is larger than allowed.
    #[error("the file at `{host}` has more than {limit} bytes; `--max-file` sets the limit")]
    TooLarge {
        /// The host of the URL.
        host: String,
        /// The limit.
        limit: u64,
    },
    /// The server sent no bytes for too long.
    #[error("`{host}` sent nothing for {after:?}")]
    Stalled {
        /// The host of the URL.
        host: String,
        /// How long we waited.
        after: Duration,
    },
    /// The server sends too slowly.
    #[error("`{host}` sends too slowly: less than {bytes} bytes in {window:?}")]
    TooSlow {
        /// The host of the URL.
        host: String,
        /// The minimum number of bytes.
        bytes: u64,
        /// The time in which they must arrive.
        window: Duration,
    },
    /// The download took too long.
    #[error("the download from `{host}` took more than {limit:?}")]
    TooLong {
        /// The host of the URL.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// The file could not be written or read.
    #[error("the server could not {doing} the file")]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the URL is not allowed, so that a retry cannot succeed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether no connection was opened, so that the server has not received the request.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.is_connect())
    }

    /// Whether the disk was full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// The error of a request. A refusal of the resolver or the redirect policy is inside of reqwest's
    /// error.
    pub(crate) fn from_send(url: &Url, error: reqwest::Error) -> Self {
        let (host, error) = (host_of(url), error.without_url());
        match refusal_in(&error) {
            Some(source) => Self::Refused { host, source },
            None => Self::Unreachable {
                host,
                source: error,
            },
        }
    }

    pub(crate) fn unwritable(source: std::io::Error) -> Self {
        Self::File {
            doing: "write",
            source,
        }
    }

    pub(crate) fn unreadable(source: std::io::Error) -> Self {
        Self::File {
            doing: "read",
            source,
        }
    }
}

fn refusal_in(error: &reqwest::Error) -> Option<InvalidUrl> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(refusal) = error.downcast_ref::<InvalidUrl>() {
            return Some(refusal.clone());
        }
        cause = error.source();
    }
    None
}

/// Host and port of a URL, without the parts that may contain secrets.
pub(crate) fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}
