//! What can go wrong when somebody is called. No error holds a path or a query of a URL, or its
//! credentials: they end in logs and in answers.

use std::error::Error as StdError;
use std::time::Duration;

use reqwest::StatusCode;
use url::Url;

use crate::InvalidUrl;

/// A call outward did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address, or one that it led to, is not called.
    #[error("`{host}` is not called")]
    Refused {
        /// Whom we should have called.
        host: String,
        /// Why not.
        source: InvalidUrl,
    },
    /// Nothing could be prepared for calling; out of file descriptors, for instance.
    #[error("could not get ready to call `{host}`")]
    NotReady {
        /// Whom we wanted to call.
        host: String,
        /// Why.
        source: reqwest::Error,
    },
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
        status: StatusCode,
    },
    /// The body is larger than allowed.
    #[error("the file at `{host}` has more than {limit} bytes; --max-file sets the limit")]
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
    /// What came was too little.
    #[error("`{host}` sends too slowly: less than {bytes} bytes in {window:?}")]
    TooSlow {
        /// Whom we called.
        host: String,
        /// The least that must come.
        bytes: u64,
        /// In which time.
        window: Duration,
    },
    /// It did not end.
    #[error("the download from `{host}` took more than {limit:?}")]
    TooLong {
        /// Whom we called.
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
    /// Whether asking again is in vain, because the address is not called at all.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the disk was full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// Why `url` could not be called; the guard may have spoken from inside the client.
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

/// Whom a URL names, without the parts that may hold secrets.
pub(crate) fn host_of(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => url.scheme().to_owned(),
    }
}
